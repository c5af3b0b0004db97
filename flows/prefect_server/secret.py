"""The secret of an installation: a file that only its user can read."""

import os
import secrets
import tempfile
from base64 import b64encode
from pathlib import Path

from predictor.errors import InputError, WarehouseError

USER = "shockwave"
"""User name of the secret, for browsers."""

_BYTES = 32
"""Random bytes of a secret: 256 bits, as is conventional for keys."""


def read_secret(file: Path) -> str:
    """Return the secret `USER:PASSWORD` in a file; the first call creates it.

    Raises:
        InputError: Others can read the file, or its content is invalid.
        WarehouseError: The file cannot be read or written.
    """
    try:
        if not file.exists():
            _make(file)
        if (mode := file.stat().st_mode & 0o777) & 0o077:
            raise InputError(
                str(file),
                f"others can read or change it (mode {mode:o})",
                "remove it; the next start creates another",
            )
        secret = file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not text"
        raise WarehouseError(
            str(file),
            f"cannot be read or written ({reason})",
            "make it accessible, or set PREFECT_HOME",
        ) from None
    if not secret.startswith(f"{USER}:") or len(secret) < _BYTES:
        raise InputError(
            str(file),
            f"has no secret {USER}:PASSWORD of at least {_BYTES} characters",
            "remove it; the next start creates another",
        )
    return secret


def authorization(credential: str) -> str:
    """Return the `Authorization` header for a token, or for the secret `USER:PASSWORD`."""
    if ":" not in credential:
        return f"Bearer {credential}"
    return f"Basic {b64encode(credential.encode(errors='replace')).decode()}"


def _make(file: Path) -> None:
    """Write a new secret; if several processes do so at once, the first secret stays.

    The link is atomic and fails if the file exists, so that no process reads half a secret.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    handle, made = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}-")  # with mode 0600
    try:
        with os.fdopen(handle, "w", encoding="ascii") as opened:
            opened.write(f"{USER}:{secrets.token_urlsafe(_BYTES)}\n")
        if not file.exists():
            os.link(made, file)
    except FileExistsError:
        pass
    finally:
        os.unlink(made)
