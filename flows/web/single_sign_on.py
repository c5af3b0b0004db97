"""Single sign-on: users whom a reverse proxy has authenticated, such as oauth2-proxy for OIDC.

The proxy names the user and groups in headers. Anybody who reaches the server could send them, so
they count only from a declared address, with the proxy's own password. All else is ignored.
"""

import hmac
import os
from base64 import b64decode
from binascii import Error as NotBase64
from dataclasses import dataclass
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator
from starlette.requests import HTTPConnection

from flows.prefect_server.command import SINGLE_SIGN_ON
from flows.runs.toml_file import read_toml, validate_fields
from predictor.errors import InputError
from warehouse.inbox.tokens import MOST_TEXT, Role, Token

LEAST_PASSWORD = 32
"""Least characters of the proxy's password: 192 bits in base 64. A convention."""

_NEEDED = "the proxy's addresses and the roles of groups (docs/security.md)"
_HEADER = Field(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,60}$")


class GroupRole(BaseModel):
    """What the members of a group may do."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    group: Annotated[str, Field(min_length=1, max_length=200)]
    role: Role
    tenant: Annotated[str, Field(max_length=MOST_TEXT)] = ""

    @model_validator(mode="after")
    def _has_a_tenant(self) -> "GroupRole":
        if bool(self.tenant) != (self.role is Role.TENANT):
            raise ValueError("give a tenant with the role tenant, and no other")
        return self


class SingleSignOnFile(BaseModel):
    """The fields of the file; of a user's groups the first in `groups` counts."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    proxies: Annotated[list[str], Field(min_length=1, max_length=100)]
    password_file: Path
    groups: Annotated[list[GroupRole], Field(min_length=1, max_length=1000)]
    user_header: Annotated[str, _HEADER] = "X-Forwarded-Email"
    groups_header: Annotated[str, _HEADER] = "X-Forwarded-Groups"


@dataclass(frozen=True)
class SingleSignOn:
    """A proxy whose users are believed.

    Attributes:
        networks: Addresses of the proxy.
        password: What it proves itself with, as the password of basic authentication.
    """

    file: SingleSignOnFile
    networks: tuple[IPv4Network | IPv6Network, ...]
    password: str

    def find(self, request: HTTPConnection) -> Token | None:
        """Return the user of a request; None unless the proxy sent it, for a member of a group.

        A header that comes twice may be a client's own that the proxy passed on: it names nobody.
        """
        if not (request.client and self._is_proxy(request.client.host)):
            return None
        sent = [request.headers.getlist(name) for name in self._names]
        if any(len(values) != 1 for values in sent):
            return None
        (authorization,), (user,), (groups,) = sent
        given = _read_password(authorization)
        if not hmac.compare_digest(given.encode(), self.password.encode()):
            return None
        if not user or len(user) > MOST_TEXT or not user.isprintable():
            return None
        own = {group.strip() for group in groups.split(",")}
        grant = next((grant for grant in self.file.groups if grant.group in own), None)
        return Token(user, grant.role, grant.tenant) if grant else None

    @cached_property
    def _names(self) -> tuple[str, str, str]:
        return "authorization", self.file.user_header, self.file.groups_header

    def _is_proxy(self, host: str) -> bool:
        try:
            address = ip_address(host)
        except ValueError:
            return False
        return any(address in network for network in self.networks)


def read_single_sign_on(path: Path) -> SingleSignOn:
    """Read the file that configures single sign-on.

    Raises:
        InputError: The file or the file of the password cannot be read or used.
    """
    file = validate_fields(path, SingleSignOnFile, read_toml(path, _NEEDED), "single sign-on")
    networks = []
    for text in file.proxies:
        try:
            networks.append(ip_network(text))
        except ValueError:
            problem, remedy = f"{text!r} is no address", "give one such as 127.0.0.1 or 10.0.0.0/24"
            raise InputError(f"{path}: proxies", problem, remedy) from None
        if networks[-1].prefixlen == 0:
            remedy = "give the proxy's own address"
            raise InputError(f"{path}: proxies", f"{text} is every address", remedy)
    return SingleSignOn(file, tuple(networks), _read_password_file(path.parent, file))


def find_single_sign_on() -> SingleSignOn | None:
    """Return the single sign-on of this process's environment; None without any."""
    path = os.environ.get(SINGLE_SIGN_ON)
    return read_single_sign_on(Path(path)) if path else None


def _read_password_file(folder: Path, file: SingleSignOnFile) -> str:
    path = folder / file.password_file
    try:
        mode, password = path.stat().st_mode & 0o777, path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise InputError(str(path), f"cannot be read ({reason})", "make it accessible") from None
    if mode & 0o007:
        raise InputError(str(path), f"everybody can read or change it (mode {mode:o})", "chmod 600")
    if len(password) < LEAST_PASSWORD:
        problem = f"has fewer than {LEAST_PASSWORD} characters"
        raise InputError(str(path), problem, "make one: openssl rand -hex 32")
    return password


def _read_password(authorization: str) -> str:
    """Return the password of an `Authorization` header; empty without one."""
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return b64decode(encoded.strip(), validate=True).decode().partition(":")[2]
    except (NotBase64, ValueError):
        return ""
