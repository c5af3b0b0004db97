"""Attacks of a stranger on a Prefect server, which must have no effect."""

import json
import time
import uuid
from base64 import b64encode
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPConnection, HTTPSConnection
from socket import create_connection
from ssl import SSLContext
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from flows.prefect_server.access import Access
from harness.waiting import POLL_SECONDS

FOREIGN = "evil.example"
ATTACKS = ("foreign origin", "foreign host", "no secret", "no CSRF token")
POLICY_VIOLATION = 1008
"""The code with which a WebSocket is closed that has no secret."""

STREAMS = ("/api/events/in", "/api/events/out", "/api/logs/out")


def ask(
    access: Access,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] = MappingProxyType({}),
    tls: SSLContext | None = None,
) -> tuple[int, bytes]:
    """A request with these headers only; status and body of the answer.

    Asks again where the database was busy (503), as Prefect's own clients do.
    """
    parts = urlsplit(access.url)
    assert parts.hostname
    content = None if body is None else json.dumps(body)
    while True:
        with closing(
            HTTPSConnection(parts.hostname, parts.port, context=tls)
            if tls
            else HTTPConnection(parts.hostname, parts.port)
        ) as connection:
            all_headers = {"Content-Type": "application/json", **headers}
            connection.request(method, path, content, all_headers)
            answer = connection.getresponse()
            if answer.status != 503:
                return answer.status, answer.read()
        time.sleep(POLL_SECONDS)


def authorization(access: Access) -> dict[str, str]:
    """The header that carries the secret."""
    return {"Authorization": f"Basic {b64encode(access.secret.encode()).decode()}"}


def token(access: Access) -> dict[str, str]:
    """The headers of a CSRF token."""
    client = str(uuid.uuid4())
    status, body = ask(
        access, "GET", f"/api/csrf-token?client={client}", headers=authorization(access)
    )
    assert status == 200
    return {"Prefect-Csrf-Token": json.loads(body)["token"], "Prefect-Csrf-Client": client}


def allowed(access: Access) -> dict[str, str]:
    """The headers of a legitimate request: from its own page, with secret and token."""
    return {"Origin": access.url, **authorization(access), **token(access)}


def headers_of(access: Access, attack: str) -> dict[str, str]:
    """The headers of an attack, complete but for the part that it is named after."""
    headers = allowed(access)
    if attack == "foreign origin":
        headers["Origin"] = f"http://{FOREIGN}"
    elif attack == "foreign host":
        headers["Host"] = f"{FOREIGN}:{urlsplit(access.url).port}"
        del headers["Origin"]
    elif attack == "no secret":
        del headers["Authorization"]
    else:
        assert attack == "no CSRF token"
        del headers["Prefect-Csrf-Token"]
    return headers


def attacked(access: Access) -> None:
    """Try all four attacks on addresses of any Prefect server; none may succeed."""
    for attack in ATTACKS:
        headers = headers_of(access, attack)
        name = f"{attack} {uuid.uuid4()}"
        refusal = (401,) if attack == "no secret" else (403,)
        for method, path, body in (
            ("POST", "/api/flows/", {"name": name}),
            ("POST", "/api/variables/", {"name": "stranger", "value": 1}),
            ("POST", "/api/flows/filter", {}),
            ("DELETE", f"/api/flows/{uuid.uuid4()}", None),
        ):
            status, _ = ask(access, method, path, body, headers)
            assert status in refusal, (attack, method, path, status)
        if attack != "no CSRF token":  # reading needs none
            for path in ("/api/admin/version", "/api/admin/settings", "/api/csrf-token?client=x"):
                status, _ = ask(access, "GET", path, headers=headers)
                assert status in refusal, (attack, path, status)
            for path in STREAMS:
                assert streams(access, path, headers) in (403, POLICY_VIOLATION), (attack, path)
    preflight = {"Origin": f"http://{FOREIGN}", "Access-Control-Request-Method": "POST"}
    assert ask(access, "OPTIONS", "/api/flows/", headers=preflight)[0] == 403

    status, _ = ask(access, "POST", "/api/flows/", {"name": "obeyed"}, allowed(access))
    assert status in (200, 201)  # it may be there already
    status, body = ask(access, "POST", "/api/flows/filter", {}, allowed(access))
    names = {flow["name"] for flow in json.loads(body)}
    assert "obeyed" in names
    assert not [name for name in names if name.startswith(ATTACKS)]
    status, body = ask(access, "POST", "/api/variables/filter", {}, allowed(access))
    assert (status, json.loads(body)) == (200, [])
    for path in STREAMS:
        assert streams(access, path, allowed(access)) is None, path


def streams(access: Access, path: str, headers: Mapping[str, str]) -> int | None:
    """The status with which the server refuses a stream of events; None if it opens it."""
    known = {name: headers[name] for name in headers if name == "Authorization"}
    parts = urlsplit(access.url)
    try:
        with connect(
            f"ws://{headers.get('Host', parts.netloc)}{path}",
            sock=create_connection((parts.hostname, parts.port)),
            origin=Origin(headers["Origin"]) if "Origin" in headers else None,
            subprotocols=[Subprotocol("prefect")],
            additional_headers=known,
            proxy=None,
        ) as stream:
            stream.send(json.dumps({"type": "auth", "token": access.secret if known else "guess"}))
            assert json.loads(stream.recv())["type"] == "auth_success"
            return None
    except InvalidStatus as error:
        return error.response.status_code
    except ConnectionClosed as error:
        return error.rcvd.code if error.rcvd else 0
