"""The login of the command line: a service's address and a token, readable only by this user."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

from predictor.errors import InputError, WarehouseError

URL, TOKEN = "SHOCKWAVE_URL", "SHOCKWAVE_TOKEN"
"""Environment variables that override the stored login."""


@dataclass(frozen=True, slots=True)
class Login:
    """A service's address and a token for it."""

    url: str
    token: str


def login_file() -> Path:
    """Return the file that stores a login."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "shockwave" / "login.json"


def read_login() -> Login | None:
    """Read this user's login; None if there is none.

    Raises:
        InputError: Others can read the file, its content is invalid, or a variable is missing.
    """
    if url := os.environ.get(URL, ""):
        if not (token := os.environ.get(TOKEN, "")):
            raise InputError(TOKEN, f"is missing, and {URL} is set", "set both, or neither")
        return Login(url, token)
    file = login_file()
    try:
        if (mode := file.stat().st_mode & 0o777) & 0o077:
            problem = f"others can read or change it (mode {mode:o})"
            raise InputError(str(file), problem, "remove it, and log in again")
        return Login(**json.loads(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        reason = getattr(error, "strerror", None) or "it is not a login"
        raise InputError(str(file), f"cannot be used ({reason})", "remove it") from None


def save_login(login: Login) -> Path:
    """Store a login in a file that only its user can read; return the file.

    Raises:
        WarehouseError: The file cannot be written.
    """
    file = login_file()
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        temporary.unlink(missing_ok=True)
        made = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(made, "w", encoding="utf-8") as opened:
            json.dump(asdict(login), opened)
        temporary.replace(file)
    except OSError as error:
        raise WarehouseError(
            str(file),
            f"cannot be written ({error.strerror})",
            "make it writable, or set XDG_CONFIG_HOME",
        ) from None
    return file


def delete_login() -> bool:
    """Delete the stored login; return whether there was one.

    Raises:
        WarehouseError: The file cannot be removed.
    """
    file = login_file()
    try:
        file.unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        problem = f"cannot be removed ({error.strerror})"
        raise WarehouseError(str(file), problem, "remove it yourself") from None
    return True
