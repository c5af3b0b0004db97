"""Where the service listens, and the addresses at which it is reached."""

import errno
import socket
import ssl
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from flows.prefect_server.command import answers
from predictor.errors import InputError

_EVERY = ("0.0.0.0", "::")


@dataclass(frozen=True)
class ListenAddress:
    """An address to listen on.

    Attributes:
        host: Address or name of an interface of this machine.
        port: Port.
        tls_cert: Certificate of the host, to serve HTTPS.
        tls_key: The certificate's key.
        proxy: Address at which a reverse proxy serves it; empty if there is none.
    """

    host: str
    port: int
    tls_cert: Path | None = None
    tls_key: Path | None = None
    proxy: str = ""

    @property
    def tls(self) -> tuple[str, str] | None:
        """The files of certificate and key, if it serves HTTPS."""
        return (str(self.tls_cert), str(self.tls_key)) if self.tls_cert and self.tls_key else None

    @property
    def url(self) -> str:
        """URL for programs of this machine."""
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        scheme = "https" if self.tls else "http"
        return (
            f"{scheme}://[{host}]:{self.port}" if ":" in host else f"{scheme}://{host}:{self.port}"
        )

    @property
    def shown(self) -> str:
        """URL of the UI for a browser."""
        return self.proxy or self.url

    def check(self) -> None:
        """Refuse an address that cannot be used, or would be open to a network.

        Raises:
            InputError: The port is not available, the files of certificate and key cannot be used,
                or other machines could read the traffic.
        """
        self._check_files()
        self._check_proxy()
        try:
            addresses = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except (socket.gaierror, UnicodeError):
            raise InputError(
                "host", f"{self.host!r} is no known address", "try 127.0.0.1"
            ) from None
        public = [entry[4][0] for entry in addresses if not ip_address(entry[4][0]).is_loopback]
        if public and not self.tls and not self.proxy:
            raise InputError(
                "host",
                f"{self.host} is reached from other machines, and HTTP shows them the secret",
                "give --tls-cert and --tls-key, or --behind-proxy URL if a proxy serves HTTPS",
            )
        if self.tls and self.host in _EVERY:
            raise InputError(
                "host", f"{self.host} is in no certificate", "give the name or address that is"
            )
        family, kind, protocol, _, address = addresses[0]
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(address)
        except OSError as error:
            raise self._unavailable(error) from None

    def _check_files(self) -> None:
        if (self.tls_cert is None) != (self.tls_key is None):
            missing = "tls_cert" if self.tls_cert is None else "tls_key"
            raise InputError(missing, "is missing", "give both --tls-cert and --tls-key")
        if self.tls:
            cert, key = self.tls
            try:
                context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
                context.load_cert_chain(cert, key, password=lambda: "")
            except OSError as error:  # ssl.SSLError, too
                raise InputError(
                    "tls_cert",
                    f"cannot be served with its key ({error.strerror or error})",
                    "give PEM files of a certificate and its key, without a passphrase",
                ) from None

    def _check_proxy(self) -> None:
        if not self.proxy:
            return
        try:
            parts = urlsplit(self.proxy)
            port = parts.port  # raises if it is no number
        except ValueError:
            parts, port = urlsplit(""), None
        default = {"https": 443, "http": 80}.get(parts.scheme)
        plain = f"{parts.scheme}://{parts.netloc}"
        local = parts.hostname in ("localhost", "127.0.0.1", "::1")  # as by ssh -L
        if not parts.hostname or plain != self.proxy or port == default or "@" in plain:
            raise InputError(
                "behind_proxy",
                f"{self.proxy!r} is not an address as browsers write it",
                "give https://HOST or https://HOST:PORT, without a path",
            )
        if parts.scheme != "https" and not (parts.scheme == "http" and local):
            raise InputError(
                "behind_proxy",
                f"{self.proxy} would show the secret to the network",
                "give an address with https://, or one of this machine",
            )

    def _unavailable(self, error: OSError) -> InputError:
        if error.errno != errno.EADDRINUSE:
            return InputError(
                "port",
                f"{self.host}:{self.port} cannot be listened on ({error.strerror})",
                "give another host or port",
            )
        prefect = answers(self.url)
        who = "a service of another warehouse or other Prefect server"
        stop = "stop it (a service: shockwave down --warehouse FOLDER)"
        return InputError(
            "port",
            f"{who if prefect else 'another program'} is on port {self.port} already",
            f"{stop if prefect else 'stop it'} or give another port",
        )
