"""Tokens for the API, each with a name and a role."""

import secrets
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from hashlib import sha256
from pathlib import Path

from sqlalchemy import Connection, delete, insert, select

from predictor.errors import InputError, WarehouseError
from warehouse.inbox.database import Database
from warehouse.inbox.inbox import FILE
from warehouse.inbox.tables import TOKENS

PREFIX = "shockwave_"
"""Prefix of every token, by which secret scanners find it."""

_BYTES = 32
"""Random bytes of a token: 256 bits, as is usual for keys."""

MOST_TEXT = 80
"""Most characters of a token's name or tenant. An engineering bound."""


class Role(StrEnum):
    """What a token allows."""

    READER = "reader"
    """See all jobs; change nothing."""
    TENANT = "tenant"
    """See and command the jobs of a tenant."""
    OPERATOR = "operator"
    """See and command everything."""


@dataclass(frozen=True, slots=True)
class Token:
    """A token, without its secret.

    Attributes:
        name: Name, which entries of the inbox give as their submitter.
        tenant: The tenant of the role `tenant`; else empty.
        made_at: Time of creation, in seconds since the epoch.
    """

    name: str
    role: Role
    tenant: str = ""
    made_at: float = 0.0

    def sees(self, tenant: str) -> bool:
        """Return whether the token may see the jobs of a tenant."""
        return self.role is not Role.TENANT or tenant == self.tenant


class Tokens:
    """The tokens of the service of a warehouse; for `url` and errors see `Database`.

    Only hashes are stored. They need no salt, because tokens have as many random bits as hashes.

    Raises:
        InputError: A name is taken or unknown, or an argument is missing or invalid.
        WarehouseBusy: The database does not answer.
    """

    def __init__(self, warehouse: Path, url: str = "") -> None:
        self._database = Database(warehouse / FILE, url)

    def add(self, name: str, role: Role, tenant: str = "") -> str:
        """Make a token and return its text, which is stored nowhere."""
        for field, text in (("name", name), ("tenant", tenant)):
            if len(text) > MOST_TEXT or not text.isprintable():
                problem = f"is longer than {MOST_TEXT} characters, or has control characters"
                raise InputError(field, problem, "give a shorter one of letters and digits")
        if not name:
            raise InputError("name", "is empty", "say who gets the token")
        if bool(tenant) != (role is Role.TENANT):
            problem = "is missing" if not tenant else f"is given, and the role is {role.value}"
            raise InputError("tenant", problem, "give a tenant with the role tenant, and no other")
        made = PREFIX + secrets.token_urlsafe(_BYTES)
        row = asdict(Token(name, role, tenant, time.time())) | {"hash": _hash(made)}

        def work(connection: Connection) -> bool:
            taken = connection.execute(select(TOKENS.c.name).where(TOKENS.c.name == name)).first()
            if not taken:
                connection.execute(insert(TOKENS), row)
            return not taken

        if not self._database.write(work):
            remedy = "remove it, or give another name"
            raise InputError("name", f"there is already a token {name!r}", remedy)
        return made

    def remove(self, name: str) -> None:
        """Revoke a token at once."""
        asked = delete(TOKENS).where(TOKENS.c.name == name)
        if not self._database.write(lambda connection: connection.execute(asked).rowcount):
            remedy = "give a name from shockwave token list"
            raise InputError("name", f"there is no token {name!r}", remedy)

    def all(self) -> list[Token]:
        """Return all tokens, by name."""
        asked = select(*_SHOWN).order_by(TOKENS.c.name)
        return self._database.read(
            lambda connection: [_token(*row) for row in connection.execute(asked)]
        )

    def find(self, *texts: str) -> list[Token | None]:
        """Return the tokens with these texts; None for a text that is not a token."""
        hashes = [_hash(text) for text in texts]
        asked = select(TOKENS.c.hash, *_SHOWN).where(TOKENS.c.hash.in_({*hashes}))
        rows = self._database.read(lambda connection: connection.execute(asked).all())
        found = {digest: _token(*shown) for digest, *shown in rows}
        return [found.get(digest) for digest in hashes]

    def close(self) -> None:
        """Close all connections."""
        self._database.close()

    def __enter__(self) -> "Tokens":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


_SHOWN = (TOKENS.c.name, TOKENS.c.role, TOKENS.c.tenant, TOKENS.c.made_at)


def _token(name: str, role: str, tenant: str, made_at: float) -> Token:
    try:
        return Token(name, Role(role), tenant, float(made_at))
    except (TypeError, ValueError):
        problem, remedy = "was changed", f"remove it: shockwave token rm {name}"
        raise WarehouseError(f"token {name!r}", problem, remedy) from None


def _hash(text: str) -> str:
    return sha256(text.encode(errors="surrogateescape")).hexdigest()
