"""The API: access control, refusals and their form, without side effects."""

import asyncio
import json
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import httpx
import pytest
import schemathesis
from hypothesis import given, settings
from sqlalchemy import event
from sqlalchemy.engine import Engine

import flows.web.api
from flows.campaigns import Runner
from flows.campaigns.runners import stop_processes
from flows.web.api import create_api
from flows.web.backend import MOST_BYTES, UPLOADS_OF_ONE, RequestRefused, ServiceBackend
from flows.web.streams import MOST_OF_ONE, MOST_STREAMS, Slots
from harness.attacks import schemas
from predictor.allocation import Demand
from predictor.errors import WarehouseBusy, WarehouseError
from predictor.options import JobOptions
from tasks.commands import CommandKind
from tests.flows.test_scheduler import JOB, go
from warehouse.inbox.inbox import FILE as DATABASE
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Token, Tokens

SECRET = "shockwave:secret"
FILE = {"model": "conv-small", "batch_size": 32, "epochs": 5}
"""The declaration of a job."""

Result = TypeVar("Result")

CALLERS = ("none", "reader", "tenant", "other", "operator", "secret")


class Client:
    """A client of an API in this process."""

    def __init__(self, warehouse: Path) -> None:
        app: Any = create_api(ServiceBackend(warehouse, SECRET))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._client = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1")
        self._loop = asyncio.Runner()

    def request(self, method: str, path: str, **more: Any) -> httpx.Response:
        return self.run(self.send(method, path, **more))

    async def send(self, method: str, path: str, **more: Any) -> httpx.Response:
        return await self._client.request(method, path, **more)

    def run(self, requests: Coroutine[Any, Any, Result]) -> Result:
        return self._loop.run(requests)

    def close(self) -> None:
        self._loop.run(self._client.aclose())
        self._loop.close()


def furnish(warehouse: Path) -> dict[str, str]:
    """A service with a job of tenant a that runs, and one of tenant b that was just accepted.

    Returns tokens by caller.
    """
    with Inbox(warehouse) as inbox:
        inbox.submit(replace(JOB, name="mine"))
        go(warehouse, 1)
        inbox.submit(replace(JOB, name="theirs", tenant="b"))
        inbox.submit(replace(JOB, name="mine", tenant="b"))
    with Tokens(warehouse) as tokens:
        return {
            "reader": tokens.add("reader", Role.READER),
            "tenant": tokens.add("ann", Role.TENANT, "a"),
            "other": tokens.add("bob", Role.TENANT, "c"),
            "operator": tokens.add("olga", Role.OPERATOR),
        }


class Api:
    """The API of a furnished service."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        made = furnish(warehouse)
        self.headers = {name: {"Authorization": f"Bearer {one}"} for name, one in made.items()}
        self.headers["none"] = {}
        self.client = Client(warehouse)

    def ask(
        self, caller: str, method: str, path: str, body: Any = None, key: str = ""
    ) -> httpx.Response:
        headers = {**self.headers.get(caller, {}), **({"Idempotency-Key": key} if key else {})}
        auth = ("shockwave", "secret") if caller == "secret" else None
        return self.client.request(method, f"/v1{path}", json=body, headers=headers, auth=auth)

    @property
    def schema(self) -> dict[str, Any]:
        """Its OpenAPI schema."""
        found: dict[str, Any] = self.ask("none", "GET", "/openapi.json").json()
        return found

    def last(self) -> int:
        with Inbox(self.warehouse) as inbox:
            return inbox.last()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    made = Api(tmp_path_factory.mktemp("api"))
    yield made
    made.client.close()


def test_a_killed_process_of_forecasts_is_replaced(api: Api) -> None:
    assert api.ask("operator", "POST", "/forecast", {}).status_code == 200
    stop_processes(Runner.PROCESSES)
    assert api.ask("operator", "POST", "/forecast", {}).status_code == 200


ACCESS: dict[tuple[str, str, str | None], tuple[int | None, ...]] = {
    # method, path, body: the answers to none, reader, tenant a, tenant c, operator, the secret
    ("GET", "/status", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/jobs", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/queue", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/nodes", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/events", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/metrics", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/me", None): (401, 200, 200, 200, 200, 200),
    ("POST", "/jobs/forecast", json.dumps(FILE)): (401, 200, 200, 200, 200, 200),
    ("POST", "/jobs/forecast", json.dumps(FILE | {"tenant": "a"})): (401, 200, 200, 403, 200, 200),
    ("GET", "/jobs/1/logs", None): (401, 422, 422, 404, 422, 422),  # none on a virtual cluster
    ("GET", "/jobs/2/logs", None): (401, 422, 404, 404, 422, 422),
    ("GET", "/jobs/1/logs/stream", None): (401, 422, 422, 404, 422, 422),
    ("GET", "/jobs/2/logs/stream", None): (401, 422, 404, 404, 422, 422),
    ("GET", "/tenants", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/prices", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/usage", None): (401, 200, 200, 200, 200, 200),
    ("GET", "/jobs/1/why", None): (401, 200, 200, 404, 200, 200),
    ("GET", "/jobs/2/why", None): (401, 422, 404, 404, 422, 422),  # not taken in yet
    ("GET", "/jobs/1/history", None): (401, 200, 200, 404, 200, 200),
    ("GET", "/jobs/2/history", None): (401, 200, 404, 404, 200, 200),
    ("GET", "/jobs/1", None): (401, 200, 200, 404, 200, 200),
    ("GET", "/jobs/2", None): (401, 200, 404, 404, 200, 200),
    ("GET", "/jobs/theirs", None): (401, 200, 404, 404, 200, 200),
    ("GET", "/jobs/99", None): (401, 404, 404, 404, 404, 404),
    ("POST", "/jobs", json.dumps(FILE)): (401, 403, 201, 201, 201, 201),
    ("POST", "/jobs", json.dumps(FILE | {"tenant": "a"})): (401, 403, 201, 403, 201, 201),
    ("POST", "/jobs", json.dumps(FILE | {"budget": 2.0})): (401, 403, 403, 403, 201, 201),
    **{
        ("POST", f"/jobs/{job}/{kind}", None): row
        for kind in ("cancel", "hold", "release", "requeue")
        for job, row in (
            ("1", (401, 403, 202, 404, 202, 202)),
            ("2", (401, 403, 404, 404, 202, 202)),
        )
    },
    **{
        ("POST", f"/jobs/{job}/budget", '{"value": 2.0}'): (401, 403, 403, 403, 202, 202)
        for job in (1, 2)
    },
    ("POST", "/nodes/0/drain", None): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes/0/cordon", None): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes/0/uncordon", None): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes/0/remove", None): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes/0/image", None): (401, 403, 403, 403, 422, 422),  # none on a virtual cluster
    ("POST", "/nodes/0/maintain", '{"hours": 1}'): (401, 403, 403, 403, 202, 422),  # as before
    ("POST", "/nodes/0/reserve", '{"hours": 1, "tenant": "a"}'): (401, 403, 403, 403, 202, 422),
    ("POST", "/windows/1/reopen", None): (401, 403, 403, 403, 422, 422),  # it is a job
    ("POST", "/code", None): (401, 403, 422, 422, 422, 422),  # it has no containers
    ("GET", "/windows", None): (401, 200, 200, 200, 200, 200),
    ("POST", "/nodes", "{}"): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes", '{"gpus": 3}'): (401, 403, 403, 403, 202, 202),
    ("POST", "/nodes", '{"gpu_type": "x"}'): (401, 403, 403, 403, 422, 422),
    ("PATCH", "/tenants/z", '{"gpu_hours": 5}'): (401, 403, 403, 403, 202, 202),
    ("POST", "/forecast", "{}"): (401, 200, 200, 200, 200, 200),
    ("POST", "/forecast", '{"hold": ["1"]}'): (401, 200, 200, 404, 200, 200),
    ("POST", "/forecast", '{"drain": ["0"]}'): (401, 200, 403, 403, 200, 200),
    ("GET", "/events/stream", None): (401, None, None, None, None, None),  # without end
    ("GET", "/openapi.json", None): (200, 200, 200, 200, 200, 200),
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", ACCESS, ids=lambda asked: " ".join(filter(None, asked)))
def test_each_role_at_each_address(api: Api, asked: tuple[str, str, str | None]) -> None:
    method, path, text = asked
    for caller, expected in zip(CALLERS, ACCESS[asked], strict=True):
        if expected is None:
            continue
        before = api.last()
        answer = api.ask(caller, method, path, json.loads(text) if text else None)
        assert answer.status_code == expected, (caller, answer.text)
        assert api.last() == before + (expected in (201, 202)), caller
        if expected >= 400:
            assert set(answer.json()) == {"place", "problem", "remedy"}


def test_the_table_has_every_address(api: Api) -> None:
    for path, methods in api.schema["paths"].items():
        about = {"jobs": {"1", "2"}, "nodes": {"0"}, "tenants": {"z"}, "windows": {"1"}}
        wanted = next((who for what, who in about.items() if f"/{what}/{{" in path), {""})
        pattern = re.compile(re.sub(r"\{\w+\}", r"(\\w+)", path))
        for method in methods:
            rows = [pattern.fullmatch(f"/v1{at}") for how, at, _ in ACCESS if how == method.upper()]
            tried = {row[1] if row.groups() else "" for row in rows if row}
            assert wanted <= tried, (method, path)


def test_tenants_see_their_own_jobs_only(api: Api) -> None:
    assert {row["tenant"] for row in api.ask("tenant", "GET", "/jobs").json()} == {"a"}
    assert {row["tenant"] for row in api.ask("tenant", "GET", "/queue").json()} == {"a"}
    assert {row["tenant"] for row in api.ask("tenant", "GET", "/tenants").json()} == {"a"}
    assert api.ask("other", "GET", "/tenants").json() == []
    assert {row["job_id"] for row in api.ask("tenant", "GET", "/events").json()} == {1}
    assert {"a", "b"} <= {row["tenant"] for row in api.ask("reader", "GET", "/jobs").json()}
    for caller, jobs in (("reader", [1]), ("tenant", [1]), ("other", [])):
        rows = api.ask(caller, "GET", "/nodes").json()
        assert sorted({job for row in rows for job in row["jobs"]}) == jobs
        assert sum(len(row["held_gpus"]) for row in rows) == 2
        assert all(row["gpus"] == len(row["gpu_indices"]) for row in rows)
    # A name is the latest of the caller's own jobs of that name.
    assert api.ask("tenant", "GET", "/jobs/mine").json()["job_id"] == 1
    assert api.ask("reader", "GET", "/jobs/mine").json()["job_id"] == 3


def test_a_key_is_its_tenant_s_own(api: Api) -> None:
    first = api.ask("tenant", "POST", "/jobs", FILE, "k").json()
    assert api.ask("tenant", "POST", "/jobs", FILE, "k").json() == first
    other = api.ask("other", "POST", "/jobs", FILE, "k").json()
    assert other["entry"] == first["entry"] + 1
    again = api.ask("tenant", "POST", "/jobs", FILE | {"epochs": 6}, "k")
    assert (again.status_code, again.json()["place"]) == (409, "key")
    with Inbox(api.warehouse) as inbox:
        entry = inbox.find(str(first["job_id"]))
        assert entry
        assert entry.job
        assert (entry.by, entry.job.tenant) == ("ann", "a")


def test_a_token_that_is_removed_is_refused(api: Api) -> None:
    with Tokens(api.warehouse) as tokens:
        api.headers["gone"] = {"Authorization": f"Bearer {tokens.add('gone', Role.READER)}"}
        assert api.ask("gone", "GET", "/status").status_code == 200
        tokens.remove("gone")
    assert api.ask("gone", "GET", "/status").status_code == 401


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "body: is missing; add it"),
        (b"{", "body: is not JSON; send a JSON object"),
        (b"[]", "body: [] is refused"),
        (b"[" * 50_000, "/v1/jobs: There was an error parsing the body"),
        (b"{}", "body: model: is missing; add it"),
        (json.dumps(FILE | {"gpus": 1}).encode(), "body: gpus: is not a field of a job; "),
        (json.dumps(FILE | {"model": "x"}).encode(), "model: there are no throughputs"),
        (json.dumps(FILE | {"scale_factor": 64}).encode(), "gpus: 64 are requested"),
        (json.dumps(FILE | {"name": "\ud800"}).encode(), "name: '\\ud800' is not a name; "),
        (json.dumps(FILE | {"\ud800": 1}).encode(), "body: '\\ud800' is refused; "),
        (json.dumps(FILE | {"tenant": "a\0"}).encode(), "tenant: "),
        (b'{"epochs": 1e999}', "body: epochs: "),
        (b'{"epochs": %s}' % (b"9" * 5000), "/v1/jobs: There was an error"),
    ],
)
def test_an_invalid_job_is_refused_in_a_line(api: Api, body: bytes, problem: str) -> None:
    before = api.last()
    answer = api.client.request(
        "POST",
        "/v1/jobs",
        content=body,
        headers={**api.headers["operator"], "Content-Type": "application/json"},
    )
    assert answer.status_code in (400, 422), answer.text
    problem_row = answer.json()
    assert "{place}: {problem}; {remedy}".format(**problem_row).startswith(problem)
    assert "\n" not in "".join(problem_row.values())
    assert api.last() == before


def test_a_body_is_read_up_to_its_bound(api: Api) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" " * MOST_BYTES

    answer = api.client.request(
        "POST", "/v1/jobs", content=endless(), headers=api.headers["operator"]
    )
    assert answer.status_code == 413
    assert answer.json()["problem"] == "is larger than 64 KiB"


def test_an_archive_is_refused_before_it_is_received(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow() -> AsyncIterator[bytes]:
        yield b"x"
        started.append(True)
        await end.wait()

    async def send(who: str, tenant: str = "") -> httpx.Response:
        path = f"/v1/code?tenant={tenant}"
        answer = await api.client.send("POST", path, content=slow(), headers=api.headers[who])
        end.set()  # an answer lets others end
        return answer

    async def send_many() -> list[int]:
        end.clear()
        answers = await asyncio.gather(*(send("tenant") for _ in range(UPLOADS_OF_ONE + 1)))
        return [answer.status_code for answer in answers]

    started, end = list[bool](), asyncio.Event()
    assert api.client.run(send("reader")).status_code == 403
    assert api.client.run(send("tenant", "b")).status_code == 403
    assert not started
    end.clear()

    with monkeypatch.context() as patched:
        patched.setattr(flows.web.api, "UPLOAD_SECONDS", 0.1)
        answer = api.client.run(send("tenant"))
    assert (answer.status_code, answer.json()["problem"]) == (408, "took longer than 0.1 s")

    assert sorted(api.client.run(send_many())) == [422] * UPLOADS_OF_ONE + [
        429
    ]  # the service runs no containers


def test_a_service_that_has_not_begun_says_so(tmp_path: Path) -> None:
    client = Client(tmp_path)
    answer = client.request("GET", "/v1/jobs", auth=("shockwave", "secret"))
    client.close()
    assert (answer.status_code, answer.json()["problem"]) == (503, "has not started")


def test_nobody_takes_all_streams() -> None:
    slots = Slots()
    ann, bob = Token("ann", Role.READER), Token("bob", Role.READER)
    for _ in range(MOST_OF_ONE):
        slots.take(ann)
    with pytest.raises(RequestRefused, match="of this token are open already") as refused:
        slots.take(ann)
    assert refused.value.status_code == 429
    slots.take(bob)
    slots.give_back(ann)
    slots.take(ann)
    for number in range(MOST_STREAMS - MOST_OF_ONE - 1):
        slots.take(Token(str(number), Role.READER))
    with pytest.raises(RequestRefused, match="streams are open already") as refused:
        slots.take(Token("one more", Role.READER))
    assert refused.value.status_code == 503


def test_the_schema_names_each_model_once_and_both_ways_to_authenticate(api: Api) -> None:
    parts = api.schema["components"]
    assert not [name for name in parts["schemas"] if "__" in name]
    assert {one["scheme"] for one in parts["securitySchemes"].values()} == {"bearer", "basic"}
    for path, methods in api.schema["paths"].items():
        assert all(len(about["security"]) == 2 for about in methods.values()), path


@pytest.mark.slow
def test_whatever_the_schema_allows_or_not_is_answered_by_it_and_changes_nothing(api: Api) -> None:
    app = create_api(ServiceBackend(api.warehouse, SECRET))
    schema = schemathesis.openapi.from_asgi("/v1/openapi.json", app)
    tried = Counter[int]()

    @settings(max_examples=25, deadline=None, derandomize=True, database=None)
    @given(case=schemas.cases(schema))
    def ask(case: schemathesis.Case) -> None:
        before = api.last()
        answer = case.call(headers=api.headers["operator"])
        assert not [*schemas.wrong(case, answer, api.last() - before)]
        tried[answer.status_code // 100] += 1

    ask()
    assert tried[2]
    assert tried[4]


@pytest.mark.slow
def test_an_answer_that_the_schema_does_not_have_is_noticed(api: Api) -> None:
    app = create_api(ServiceBackend(api.warehouse, SECRET))
    asked = schemathesis.openapi.from_asgi("/v1/openapi.json", app)["/v1/status"]["GET"].Case()
    answer = asked.call(headers=api.headers["reader"])
    assert not [*schemas.wrong(asked, answer, 0)]
    assert "1 new entries" in next(schemas.wrong(asked, answer, 1))
    answer.status_code = 500
    assert any("500" in problem for problem in schemas.wrong(asked, answer, 0))


@pytest.mark.slow
def test_tenants_do_not_see_who_got_their_gpus(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, demand=Demand.gang(4)))
        inbox.submit(replace(JOB, demand=Demand.gang(4), tenant="b"))
        go(tmp_path, 1)
        inbox.command(CommandKind.REQUEUE, 1)
        go(tmp_path, 1)
    with Tokens(tmp_path) as tokens:
        operator, tenant = Role.OPERATOR, tokens.add("ann", Role.TENANT, "a")
        headers = {
            name: {"Authorization": f"Bearer {secret}"}
            for name, secret in (("operator", tokens.add("olga", operator)), ("tenant", tenant))
        }
    client = Client(tmp_path)
    reasons = {}
    for caller, who in headers.items():
        events = client.request("GET", "/v1/events", headers=who).json()
        history = client.request("GET", "/v1/jobs/1/why", headers=who).json()["history"]
        reasons[caller] = {row["reason"] for row in events + history if row["kind"] == "preempted"}
    assert reasons["operator"] == {"its GPUs go to job 2"}
    assert reasons["tenant"] == {"its GPUs go to other jobs"}

    def asked(path: str, field: str) -> list[str]:
        found = (client.request("GET", path, headers=who).json() for who in headers.values())
        return [next(row[field] for row in rows if row["job_id"] == 4) for rows in found]

    with Inbox(tmp_path) as inbox:
        inbox.submit(replace(JOB, options=JobOptions(after=(2,))))
        go(tmp_path, 1)
        assert asked("/v1/queue", "waits_for") == ["the end of job 2", "the end of other jobs"]
        assert asked("/v1/jobs", "reason") == ["the end of job 2", "the end of other jobs"]
        inbox.command(CommandKind.CANCEL, 2)
        go(tmp_path, 4)
    why = "job 2, before it, did not end well"
    assert asked("/v1/jobs", "reason") == [why, why.replace("job 2", "other jobs")]
    client.close()


def test_tokens_are_looked_up_together_and_a_damaged_token_fails_its_caller_only(
    tmp_path: Path,
) -> None:
    made = {}
    with Tokens(tmp_path) as tokens:
        for name in ("ann", "bob", "eve"):
            made[name] = f"Bearer {tokens.add(name, Role.READER)}"
    asked = list[str]()

    @event.listens_for(Engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        asked.extend([statement] if "FROM shockwave_tokens" in statement else [])

    async def who(*names: str) -> list[Any]:
        backend = ServiceBackend(tmp_path, "shockwave:secret")
        given = (backend.authenticate(made.get(name, "Bearer none")) for name in names)
        return await asyncio.gather(*given, return_exceptions=True)

    async def who_of_none() -> list[Any]:
        backend = ServiceBackend(tmp_path, "shockwave:secret")
        assert await backend.authenticate(made["ann"])
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            database.execute("DROP TABLE shockwave_tokens")
        asked.clear()
        given = (backend.authenticate(made["ann"]) for _ in range(8))
        return await asyncio.gather(*given, return_exceptions=True)

    try:
        found = asyncio.run(who(*("ann", "bob", "eve", "none") * 5))
        assert [token and token.name for token in found] == ["ann", "bob", "eve", None] * 5
        assert len(asked) <= 2  # all requests that came during the first look-up
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            database.execute("UPDATE shockwave_tokens SET role = 'root' WHERE name = 'eve'")
        ann, eve, bob = asyncio.run(who("ann", "eve", "bob"))
        assert (ann.name, bob.name) == ("ann", "bob")
        assert isinstance(eve, WarehouseError)
        assert {type(error) for error in asyncio.run(who_of_none())} == {WarehouseBusy}
        assert len(asked) <= 2  # no request waits for the failed look-ups of others
    finally:
        event.remove(Engine, "before_cursor_execute", note)
