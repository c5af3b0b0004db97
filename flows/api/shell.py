"""A shell in a job of a service, over a WebSocket; `flows.web.shells` is its other end."""

import json
from collections.abc import Callable
from contextlib import suppress

import httpx
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.sync.client import connect

from flows.prefect_server.secret import authorization
from predictor.errors import WarehouseBusy


class RemoteShell:
    """The same as `containers.docker.daemon.Shell`, through a service.

    Args:
        url: Its address.
        token: A token of the service.
        seconds: Timeout of the service's answer.
        read: Reads the content of a response; raises the error of one that refuses.

    Raises:
        InputError: The service refuses it.
        WarehouseBusy: The service does not answer.
    """

    def __init__(
        self, url: str, token: str, seconds: float, read: Callable[[httpx.Response], object]
    ) -> None:
        self._code: int | None = None
        try:
            self._connection = connect(
                f"ws{url.removeprefix('http')}",
                additional_headers={"Authorization": authorization(token)},
                open_timeout=seconds,
                proxy=True
                if url.startswith("https:")
                else None,  # over HTTP it would see the token
            )
        except InvalidStatus as error:
            status, body = error.response.status_code, bytes(error.response.body)
            request = httpx.Request("GET", url)
            read(httpx.Response(status, content=body, request=request))
            raise
        except (OSError, InvalidHandshake) as error:
            problem = f"does not answer ({str(error) or type(error).__name__})"
            raise WarehouseBusy(url, problem, "start it, or forget it: shockwave logout") from None

    def receive(self) -> bytes:
        """See `Shell.receive`.

        Raises:
            WarehouseBusy: The service ended the shell.
        """
        try:
            while isinstance(message := self._connection.recv(), str):
                self._code = json.loads(message)["exit"]
        except ConnectionClosed as error:
            if error.rcvd and error.rcvd.reason:
                problem = f"was ended ({error.rcvd.reason})"
                raise WarehouseBusy("shell", problem, "open another") from None
            return b""
        return bytes(message)

    def send(self, keys: bytes) -> None:
        """See `Shell.send`."""
        self._put(keys)

    def resize(self, rows: int, columns: int) -> None:
        """See `Shell.resize`."""
        self._put(json.dumps({"rows": rows, "columns": columns}))

    def wait(self) -> int | None:
        """See `Shell.wait`."""
        return self._code

    def close(self) -> None:
        """See `Shell.close`."""
        self._connection.close()

    def _put(self, message: bytes | str) -> None:
        with suppress(ConnectionClosed):
            self._connection.send(message)
