"""Access to a Prefect server: its addresses and its secret."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from prefect.settings import (
    PREFECT_API_AUTH_STRING,
    PREFECT_API_URL,
    PREFECT_CLIENT_CSRF_SUPPORT_ENABLED,
    get_current_settings,
)
from prefect.settings.legacy import Setting

from flows.prefect_server.environment import is_loopback
from flows.prefect_server.secret import read_secret

LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
"""Names of this machine in URLs."""


@dataclass(frozen=True)
class Access:
    """Addresses and secret of a server.

    Attributes:
        url: Address for programs on this machine, `scheme://host:port`.
        secret: `USER:PASSWORD`, required in every request.
        proxy: Address of its reverse proxy; empty if there is none.
    """

    url: str
    secret: str
    proxy: str = ""

    @property
    def origins(self) -> list[str]:
        """Origins under which browsers may reach it."""
        parts = urlsplit(self.url)
        hosts = LOOPBACK if is_loopback(parts.hostname or "") else ()
        own = [f"{parts.scheme}://{host}:{parts.port}" for host in hosts]
        return list(dict.fromkeys([self.url, *own, *([self.proxy] if self.proxy else [])]))

    def server_env(self) -> dict[str, str]:
        """Return the server's environment; Prefect prefers these names to their older aliases."""
        return {
            "PREFECT_SERVER_API_AUTH_STRING": self.secret,
            "PREFECT_SERVER_API_CSRF_PROTECTION_ENABLED": "1",
            "PREFECT_SERVER_API_CORS_ALLOWED_ORIGINS": ",".join(self.origins),
        }

    def client_env(self) -> dict[str, str]:
        """Return the environment of Prefect's clients."""
        return {setting.name: str(value) for setting, value in self.client_settings().items()}

    def client_settings(self) -> dict[Setting, Any]:
        """Return the settings of Prefect's clients."""
        return {
            PREFECT_API_URL: f"{self.url}/api",
            PREFECT_API_AUTH_STRING: self.secret,
            PREFECT_CLIENT_CSRF_SUPPORT_ENABLED: True,
        }


def installation_file() -> Path:
    """Return the file of this installation's secret, in Prefect's home."""
    return get_current_settings().home / "shockwave-auth"


def describe_first_start(database: str = "") -> str:
    """Return a remark if a server starts for the first time and creates its database, else "".

    Only SQLite gets the remark, because another database may exist already. By default, the
    database is the one that Prefect is configured with.
    """
    configured = get_current_settings().server.database.connection_url
    url = database or (configured.get_secret_value() if configured else "")
    kind, _, file = url.partition(":///")
    first = kind.startswith("sqlite") and not Path(file.partition("?")[0]).exists()
    return "; the first start takes some 20 s" if first else ""


def read_access(url: str, proxy: str = "") -> Access:
    """Return the access to a server with this installation's secret.

    Raises:
        InputError: Others can read the secret's file, or its content is invalid.
        WarehouseError: The file cannot be read or written.
    """
    return Access(url, read_secret(installation_file()), proxy)
