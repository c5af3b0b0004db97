"""Requests to the API and the page of a service, as files, and checks of the answers."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import Response

from flows.web.page.sessions import Sessions

SENT = "a request"
"""Marks the file of a request in place of a command."""

PAGE = "/live"
WAREHOUSE, TOKENS = Path("s"), Path("requests/tokens")
HOST = "127.0.0.1:4200"
ORIGIN = f"http://{HOST}"
SECRET = "shockwave:secret"
JOB = {"model": "conv-small", "batch_size": 32, "epochs": 5, "scale_factor": 2, "budget": 1.0}
OPAQUE = {
    **{"kind": "opaque", "image": "counting:1", "command": ["sleep", "40"], "max_seconds": 900},
    **{"environment": {"STEP": "1"}, "array": "0-3%2", "after": ["x"], "retries": 2},
}
ASKED: tuple[tuple[str, str, str, Any], ...] = (
    *(("operator", "POST", "/v1/jobs", JOB), ("tenant", "POST", "/v1/jobs", JOB)),
    *(("operator", "POST", "/v1/jobs", OPAQUE), ("operator", "GET", "/v1/jobs/x", None)),
    ("operator", "POST", "/v1/jobs/1/budget", {"value": 2}),
    *(
        ("tenant", "POST", "/v1/forecast", {"submit": [JOB], "hold": ["x"]}),
        ("tenant", "GET", "/v1/jobs/1/why", None),
    ),
    *(("reader", "GET", "/v1/jobs/1/history", None), ("reader", "GET", "/v1/prices", None)),
    ("tenant", "GET", "/v1/tenants", None),
    *(("tenant", "POST", "/v1/jobs/x/cancel", None), ("tenant", "POST", "/v1/jobs/2/hold", None)),
    *(("operator", "POST", "/v1/nodes/0/drain", None), ("reader", "GET", "/v1/jobs", None)),
    *(("tenant", "GET", "/v1/events?after_round=0", None), ("reader", "GET", "/v1/queue", None)),
    *(("tenant", "GET", "/v1/nodes", None), ("reader", "GET", "/v1/status", None)),
    *(("nobody", "GET", "/v1/openapi.json", None), ("reader", "GET", "/live", None)),
    *(("nobody", "GET", "/live/jobs/x", None), ("nobody", "POST", "/live/logout", "")),
    ("nobody", "POST", "/live/jobs/x/hold", ""),
    ("nobody", "POST", "/live/login", "token={tenant}&to=/live/jobs/x"),
)
"""Valid requests: caller, method, address and body."""


def make(folder: Path, tokens: dict[str, str]) -> None:
    """Write a file for each valid request, and the tokens."""
    folder.mkdir()
    page = Sessions(PAGE, SECRET)
    response, headers = Response(), [(b"host", HOST.encode()), (b"origin", ORIGIN.encode())]
    request = Request({"type": "http", "headers": headers})
    page.begin(request, response, f"Bearer {tokens['operator']}")
    cookie = response.headers["set-cookie"].partition(";")[0]
    tokens = {**tokens, "cookie": cookie}
    (folder / TOKENS.name).write_text(json.dumps(tokens))
    for at, (who, method, path, body) in enumerate(ASKED):
        form = isinstance(body, str)
        kind = "application/x-www-form-urlencoded" if form else "application/json"
        sent = {
            **{"host": HOST, "authorization": f"Bearer {{{who}}}"},
            **({"content-type": kind, "idempotency-key": "k2"} if body else {}),
            **({"cookie": "{cookie}", "origin": ORIGIN} if PAGE in path else {}),
        }
        request = {
            **{"method": method, "path": path, "headers": sent},
            "body": body if form else json.dumps(body) if body else "",
        }
        (folder / f"{at:02d}.json").write_text(json.dumps(request))


def sent(file: Path) -> int:
    """Send a request, as a server passes it on; returns an exit code for its answer.

    Returns:
        0: It succeeded. 2: It was refused in the documented form, and nothing changed.

    Raises:
        AssertionError: The answer is undocumented, or reports a defect.
    """
    from flows.prefect_server.gate import Gate
    from flows.web.api import create_api
    from flows.web.backend import ServiceBackend
    from flows.web.page.app import create_page

    before, request = entries(), json.loads(file.read_text())
    page = isinstance(request, dict) and text(request.get("path", "")).startswith(PAGE)
    backend = ServiceBackend(WAREHOUSE, SECRET)
    app = Gate(create_page(backend, SECRET) if page else create_api(backend), [ORIGIN])
    status, answer = asyncio.run(asked(app, request))
    if status < 400:
        return 0
    assert status < 500, (status, answer)
    assert entries() == before, f"{status}, and yet something was accepted"
    if not page and not answer.endswith(f"this is {ORIGIN}\n".encode()):  # the refusal of the gate
        problem = json.loads(answer)
        assert sorted(problem) == ["place", "problem", "remedy"], answer
        assert all(isinstance(text, str) for text in problem.values()), answer
    print(f"error: {status}", file=sys.stderr)
    return 2


def entries() -> int:
    from warehouse.inbox.inbox import Inbox

    with Inbox(WAREHOUSE) as inbox:
        return inbox.last()


async def asked(app: Any, request: Any) -> tuple[int, bytes]:
    """Status and body of the answer to a request, whose parts may have any type."""
    fields = request if isinstance(request, dict) else {}
    address, _, query = text(fields.get("path", "/")).partition("?")
    headers, body, answered = fields.get("headers"), text(fields.get("body", "")), [0, b""]
    tokens = json.loads(TOKENS.read_text())
    headers = []
    for name, content in headers.items() if isinstance(headers, dict) else ():
        headers.append((plain(name).lower(), plain(filled(text(content), tokens))))
    scope = {
        **{"type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "scheme": "http"},
        **{"method": text(fields.get("method", "GET")).upper(), "root_path": ""},
        **{"path": unquote(address), "raw_path": plain(address), "query_string": plain(query)},
        **{"headers": headers, "server": ("127.0.0.1", 4200), "client": ("127.0.0.1", 50_000)},
    }
    chunks = [{"type": "http.request", "body": encoded(filled(body, tokens)), "more_body": False}]

    async def receive() -> dict[str, Any]:
        return chunks.pop() if chunks else {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            answered[0] = message["status"]
        else:
            answered[1] += message.get("body", b"")

    await app(scope, receive, send)
    return int(answered[0]), bytes(answered[1])


def filled(part: str, tokens: dict[str, str]) -> str:
    for name, token in tokens.items():
        part = part.replace(f"{{{name}}}", token)
    return part


def text(part: Any) -> str:
    return part if isinstance(part, str) else json.dumps(part)


def encoded(part: str) -> bytes:
    try:
        return part.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return part.encode(errors="surrogatepass")


def plain(part: str) -> bytes:
    """Text that a server passes on: without line ends, which its parser refuses."""
    return bytes(byte for byte in encoded(part) if byte >= 32)
