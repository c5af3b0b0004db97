"""Connections to a Docker daemon through the system's `ssh` client.

The SDK's own ssh transport has no timeouts, so it hangs on a silent host. It also writes the cause
of an `ssh` failure only to the terminal.
"""

import errno
import os
import signal
import socket
import subprocess
import tempfile
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from http.client import HTTPException, HTTPResponse
from threading import BoundedSemaphore
from typing import IO, Any
from urllib.parse import urlsplit

import requests.adapters
import urllib3
import urllib3.connection
import urllib3.exceptions

OPTIONS = (
    "BatchMode=yes",  # no prompts
    "ConnectTimeout=10",
    "ControlMaster=no",  # a master's end would close the connections that share it
    "LogLevel=ERROR",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",  # overrides the user's configuration, as do the next two
    "ForwardAgent=no",
    "RequestTTY=no",
)
"""Options of `ssh`, on top of the user's configuration."""
AT_ONCE = 5
"""Most connections to a host that may start at once: above 10, sshd drops some (`MaxStartups`)."""
PING = b"GET /_ping HTTP/1.1\r\nHost: ssh\r\n\r\n"
"""Docker's health check, whose answer shows that a connection is established."""
END_SECONDS = 1.0
"""Time for `ssh` to report its failure and to end. An engineering bound."""


def ssh_command(endpoint: str) -> list[str]:
    """Return the command that connects its standard streams to an `ssh://` endpoint's daemon."""
    parts = urlsplit(endpoint)
    options = [word for option in OPTIONS for word in ("-o", option)]
    user = ["-l", parts.username] if parts.username else []
    port = ["-p", str(parts.port)] if parts.port else []
    host = parts.netloc.rpartition("@")[2]
    host = host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]
    return ["ssh", *options, *user, *port, "--", host, "docker system dial-stdio"]


class SshAdapter(requests.adapters.HTTPAdapter):
    """Transport of all requests to a daemon, with an `ssh` process per connection."""

    def __init__(self, endpoint: str, connections: int) -> None:
        super().__init__()
        command = ssh_command(endpoint)
        self._pool = _Pool("localhost", maxsize=connections, command=command)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> urllib3.HTTPConnectionPool:
        """Return the daemon's connection pool, for any address and proxies."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        """Return only the path, since no proxy is used."""
        return request.path_url

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._pool.close()


class _Connection(urllib3.connection.HTTPConnection):
    """A connection through the standard streams of a command."""

    def __init__(self, *given: Any, command: Sequence[str], **options: Any) -> None:
        super().__init__(*given, **options)
        self._command = command

    def connect(self) -> None:
        """Start the command and wait for Docker's answer to `PING`."""
        with _turns(tuple(self._command)):
            self._start()
            try:
                self.sock.sendall(PING)
                with HTTPResponse(self.sock, method="GET") as answer:
                    answer.begin()
                    answer.read()
            except TimeoutError:
                self._finish()
                raise urllib3.exceptions.ConnectTimeoutError(self, "no answer") from None
            except (OSError, HTTPException) as error:
                raise self._failure() from error

    def _start(self) -> None:
        """Start the command with one end of a socket pair as standard input and output."""
        here, there = socket.socketpair()
        said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        try:
            with there:
                process = subprocess.Popen(
                    self._command,
                    stdin=there.fileno(),
                    stdout=there.fileno(),
                    stderr=said,
                    start_new_session=True,  # its own process group, without Ctrl-C
                )
        except FileNotFoundError:
            here.close()
            said.close()
            raise FileNotFoundError(errno.ENOENT, "this machine has no ssh") from None
        # A response may outlive this connection, so the last reference ends the command.
        self._finish = weakref.finalize(here, _end, process, said)
        here.settimeout(self.timeout)
        self.sock, self._process, self._said = here, process, said

    def getresponse(self) -> Any:
        """Return the response.

        Raises:
            ConnectionAbortedError: The connection failed; the message is the command's.
        """
        try:
            return super().getresponse()
        except TimeoutError:
            self._finish()
            raise
        except (OSError, HTTPException) as error:
            raise self._failure() from error

    def _failure(self) -> OSError:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_SECONDS)
        self._said.seek(0)
        lines = [line.strip() for line in self._said if line.strip()]
        self._finish()
        words = lines[-1] if lines else "the connection ended, and nothing was said of it"
        return ConnectionAbortedError(errno.ECONNABORTED, words)


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


@cache
def _turns(command: tuple[str, ...]) -> BoundedSemaphore:
    """Return the semaphore that limits how many connections to a host start at once."""
    return BoundedSemaphore(AT_ONCE)


def _end(process: "subprocess.Popen[bytes]", said: IO[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)  # includes its ProxyJump
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said.close()
