"""A Docker daemon at the far end of `ssh`, as the system's own client reaches it.

The SDK has such a way too, without a limit of time: where a host falls silent, it waits for
ever, and why `ssh` failed is lost on the terminal.
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
    "BatchMode=yes",  # nobody is there to be asked
    "ConnectTimeout=10",
    "ControlMaster=no",  # connections that it would carry for others would end with it
    "LogLevel=ERROR",
    "ServerAliveInterval=5",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",  # of the user's configuration, as are the two below
    "ForwardAgent=no",
    "RequestTTY=no",
)
"""What is said to `ssh` beside the user's configuration."""
AT_ONCE = 5
"""Connections that begin at once with one host: sshd drops some above 10 (`MaxStartups`)."""
PING = b"GET /_ping HTTP/1.1\r\nHost: ssh\r\n\r\n"
"""What Docker answers at once, when a connection has begun."""
END_SECONDS = 1.0
"""What `ssh` is given to say why it failed."""


def ssh_command(endpoint: str) -> list[str]:
    """What reaches the daemon of an `ssh://` endpoint through standard input and output."""
    parts = urlsplit(endpoint)
    options = [word for option in OPTIONS for word in ("-o", option)]
    user = ["-l", parts.username] if parts.username else []
    port = ["-p", str(parts.port)] if parts.port else []
    host = parts.netloc.rpartition("@")[2]
    host = host[1 : host.index("]")] if host.startswith("[") else host.partition(":")[0]
    return ["ssh", *options, *user, *port, "--", host, "docker system dial-stdio"]


class SshAdapter(requests.adapters.HTTPAdapter):
    """Takes all requests to one daemon, each connection through an `ssh` of its own.

    Args:
        endpoint: Where the daemon is: `ssh://[USER@]HOST[:PORT]`.
        connections: To keep for the next requests.
    """

    def __init__(self, endpoint: str, connections: int) -> None:
        super().__init__()
        command = ssh_command(endpoint)
        self._pool = _Pool("localhost", maxsize=connections, command=command)

    def get_connection_with_tls_context(self, *_: Any, **__: Any) -> urllib3.HTTPConnectionPool:
        """The daemon's connections, whatever the address and the proxies."""
        return self._pool

    def request_url(self, request: requests.PreparedRequest, proxies: Any) -> str:
        """The path alone, as no proxy is asked."""
        return request.path_url

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._pool.close()


class _Connection(urllib3.connection.HTTPConnection):
    """A connection through a command."""

    def __init__(self, *given: Any, command: Sequence[str], **options: Any) -> None:
        super().__init__(*given, **options)
        self._command = command

    def connect(self) -> None:
        """Start the command, and wait until Docker answers through it."""
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
        """Start the command, with one end of a pair of sockets as its input and output."""
        here, there = socket.socketpair()
        said = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        try:
            with there:
                process = subprocess.Popen(
                    self._command,
                    stdin=there.fileno(),
                    stdout=there.fileno(),
                    stderr=said,
                    start_new_session=True,  # which ends as one, and not by Ctrl-C
                )
        except FileNotFoundError:
            here.close()
            said.close()
            raise FileNotFoundError(errno.ENOENT, "this machine has no ssh") from None
        # A response may outlive this connection: who holds the socket last ends the command.
        self._finish = weakref.finalize(here, _end, process, said)
        here.settimeout(self.timeout)
        self.sock, self._process, self._said = here, process, said

    def getresponse(self) -> Any:
        """The answer; where there is none, the error says what the command said of it."""
        try:
            return super().getresponse()
        except TimeoutError:
            self._finish()
            raise
        except (OSError, HTTPException) as error:
            raise self._failure() from error

    def _failure(self) -> OSError:
        """What the command said of its end."""
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
    """What connections wait for that would begin with one host."""
    return BoundedSemaphore(AT_ONCE)


def _end(process: "subprocess.Popen[bytes]", said: IO[str]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)  # and what it goes through (ProxyJump)
        try:
            process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    said.close()
