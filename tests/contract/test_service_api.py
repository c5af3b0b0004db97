"""One contract for a service's API, on its own machine and over HTTP."""

import inspect
import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import islice
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from urllib.request import proxy_bypass

import httpx
import pytest

from flows.api import client as client_module
from flows.api.authorization import AuthorizedApi, open_local
from flows.api.client import Client
from flows.api.rows import Accepted
from flows.prefect_server.environment import private_env
from flows.web.streams import MOST_OF_ONE
from harness.waiting import HANG_SECONDS, POLL_SECONDS
from predictor.errors import InputError, WarehouseBusy
from tests.flows.served import SECRET, served
from tests.flows.test_api import FILE, furnish
from tests.flows.test_scheduler import FAST, JOB, go
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]

Opens = Callable[[Path], AuthorizedApi | Client]


@pytest.fixture(params=["local", "http"])
def opens(request: pytest.FixtureRequest) -> Iterator[Opens]:
    with ExitStack() as opened:

        def made(warehouse: Path) -> AuthorizedApi | Client:
            if request.param == "local":
                return opened.enter_context(open_local(warehouse))
            return opened.enter_context(Client(opened.enter_context(served(warehouse)), SECRET))

        yield made


def test_what_is_handed_in_is_there_once(opens: Opens, tmp_path: Path) -> None:
    furnish(tmp_path)
    api = opens(tmp_path)
    first = api.submit(FILE | {"name": "new"}, key="k")
    assert first == Accepted(4, "submit", 4)
    assert api.submit(FILE | {"name": "new"}, key="k") == first
    assert api.hold("new") == Accepted(5, "hold", 4)
    assert api.set_budget("4", 2.5) == Accepted(6, "budget", 4)
    assert api.drain("1") == Accepted(7, "drain", None)
    accepted = api.update_tenant("a", {"budget": 2.0, "images": ["x"]}, key="terms")
    assert accepted == Accepted(8, "tenant", None)
    assert api.update_tenant("a", {"budget": 2.0, "images": ["x"]}, key="terms") == accepted
    go(tmp_path, 1)
    assert [row.status for row in api.list_jobs()][-1] == "held"
    assert api.get_job("new") == api.list_jobs()[3]
    assert [row.drained for row in api.list_nodes()] == [False, True, False, False]
    status = api.get_status()
    assert (status.inbox, status.pending, status.drained) == (8, 0, (1,))
    for again in (api.release, api.requeue, api.cancel):
        assert again("new").job_id == 4
    assert api.uncordon("1").kind == "uncordon"
    assert api.add_node({"gpus": 1}).kind == "add"
    assert api.remove("0").kind == "remove"
    assert api.submit(FILE | {"name": "next"}).kind == "submit"
    go(tmp_path, 1)
    assert [row.node for row in api.list_nodes()] == [1, 2, 3, 4]
    assert api.get_status().gpus == 4


def test_a_node_is_set_aside_for_a_time_once(opens: Opens, tmp_path: Path) -> None:
    furnish(tmp_path)
    api, hours = opens(tmp_path), {"hours": 1.0}
    first = api.add_window("1", hours, key="now")
    assert first == Accepted(4, "maintain", None)
    assert api.add_window("1", hours, key="now") == first
    weekly = {"hours": 1.0, "start": "2999-01-01T12:00:00+01:00", "rrule": "FREQ=WEEKLY;COUNT=3"}
    repeated = api.add_window("2", weekly, tenant="a", key="weekly")
    assert repeated == Accepted(5, "reserve", None, 3)
    assert api.add_window("2", weekly, tenant="a", key="weekly") == repeated
    begin = "2999-01-08T12:30:00+01:00"
    for overlapping in (weekly, {"hours": 0.5, "start": begin}, {"hours": 2, "start": begin}):
        with pytest.raises(InputError, match=r"window [56] sets node 2 aside already, until"):
            api.add_window("2", overlapping, tenant="a")
    with pytest.raises(InputError, match="window 4 sets node 1 aside already") as refused:
        api.add_window("1", hours)  # from now on, which is later by now
    assert api.reopen(6) == Accepted(8, "reopen", None)
    go(tmp_path, 1)
    rows = api.list_windows()
    assert [(row.window, row.node, row.kind, row.tenant) for row in rows] == [
        (4, 1, "maintain", ""),
        (5, 2, "reserve", "a"),
        (7, 2, "reserve", "a"),
    ]
    assert rows[1].start == "2999-01-01T11:00:00+00:00"
    fortnight = 14 * 24 * 3600 * FAST.speed
    assert rows[2].begins_in_s - rows[1].begins_in_s == pytest.approx(fortnight)
    assert rows[0].begins_in_s == 0.0 < rows[0].ends_in_s
    assert [bool(row.window) for row in api.list_nodes()] == [False, True, False, False]
    for wrong, problem in (
        ({"hours": 0}, "hours"),
        ({"hours": 1, "start": "2020-01-01T00:00:00Z"}, "over before it begins"),
        ({"hours": 1, "start": "2999-01-01"}, "start"),
        ({"hours": 1, "rrule": "FREQ=DAILY"}, "never ends"),
        ({"hours": 1, "rrule": "FREQ=NEVER;COUNT=2"}, "rrule: is not valid"),
        ({"hours": 1, "rrule": "FREQ=DAILY;UNTIL=29990101"}, "UNTIL is not a time in UTC"),
        ({"hours": 1, "rrule": "FREQ=DAILY;COUNT=101"}, "more than 100 windows"),
        ({"hours": 1, "start": "0001-01-01T00:00:00Z", "zone": "America/Lima"}, "out of bounds"),
        ({"hours": 1, "zone": "Mars"}, "zone: 'Mars' is not a time zone"),
        ({"hours": 25, "rrule": "FREQ=DAILY;COUNT=2"}, "the windows overlap"),
    ):
        with pytest.raises(InputError, match=problem):
            api.add_window("1", wrong)
    with pytest.raises(InputError, match="there is no window 1"):
        api.reopen(1)
    (end,) = re.findall(r"until (\S+);", str(refused.value))
    assert api.add_window("1", {"hours": 1.0, "start": end}) == Accepted(9, "maintain", None)


def test_what_was_accepted_stays_so_whatever_holds_by_now(opens: Opens, tmp_path: Path) -> None:
    furnish(tmp_path)
    api = opens(tmp_path)
    api.submit(train := FILE | {"name": "train", "epochs": 4000})
    after = FILE | {"name": "next", "after": ["train"]}
    accepted, held = api.submit(after, key="next"), api.hold("train", key="held")
    api.submit(train)
    api.cancel("4")
    go(tmp_path, 4)
    assert api.get_job("4").status == "withdrawn"
    assert api.submit(after, key="next") == accepted  # its name meant another job then
    assert api.hold("train", key="held") == held
    for ask in (api.cancel, api.hold, api.release, api.requeue):
        with pytest.raises(InputError, match=r"^job: job 4 already ended: not finished; see"):
            ask("4")
    with pytest.raises(InputError, match="job 4 is withdrawn, so no job can start after it"):
        api.submit(after | {"after": ["4"]}, key="new")
    api.cancel("train")


LISTS = (
    "get_status",
    "list_jobs",
    "list_queue",
    "list_nodes",
    "list_tenants",
    "list_prices",
    "list_usage",
)


def test_both_have_the_same_methods() -> None:
    local, remote = (
        {
            name: [*inspect.signature(method).parameters]
            for name, method in inspect.getmembers(api, inspect.isfunction)
            if not name.startswith("_")
        }
        for api in (AuthorizedApi, Client)
    )
    # It reads files of this machine.
    assert local == remote | {"open_logs": ["self", "job", "shown", "tail"]}


def test_both_answer_alike(tmp_path: Path) -> None:
    furnish(tmp_path)
    go(tmp_path, 2)
    with served(tmp_path) as url, open_local(tmp_path) as here, Client(url, SECRET) as there:
        for ask in (
            *(lambda api, name=name: getattr(api, name)() for name in LISTS),
            lambda api: api.get_job("mine"),
            lambda api: api.explain("1"),
            lambda api: api.get_job_history("1"),
            lambda api: api.forecast_job(FILE),
            lambda api: api.forecast({"drain": ["1"], "submit": [FILE]}),
            lambda api: [*api.list_events()],
            lambda api: [*api.list_events(1)],
        ):
            assert ask(here) == ask(there)
        assert [*here.list_events()]
        assert str(there.explain("1")).startswith("Job 1 (mine) runs in round ")


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
def test_the_requests_of_the_docs_work_as_they_stand(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "service.md").read_text(encoding="utf-8").replace("\\\n", "")
    asked = re.findall(r"^    (curl .*)$", page, re.MULTILINE)
    token = furnish(tmp_path)["operator"]
    home = tmp_path / "home" / ".prefect"
    home.mkdir(parents=True)
    (home / "shockwave-auth").write_text(f"{SECRET}\n")
    with served(tmp_path) as url:
        for line in asked:
            there = line.replace("curl http://127.0.0.1:4200", f"curl --fail-with-body -sS {url}")
            env = {"TOKEN": token, "HOME": str(home.parent), "PATH": os.environ["PATH"]}
            done = subprocess.run(["sh", "-c", there], capture_output=True, text=True, env=env)
            assert done.returncode == 0, (line, done.stdout, done.stderr)
            assert json.loads(done.stdout)
    assert len(asked) == 4


@pytest.mark.parametrize(
    ("ask", "problem"),
    [
        (
            lambda api: api.submit(FILE | {"model": "conv-smal"}),
            "model: there are no throughputs of 'conv-smal'; did you mean conv-small",
        ),
        (lambda api: api.submit(FILE | {"scale_factor": 64}), "gpus: 64 are requested"),
        (lambda api: api.submit({}), "model: is missing; add it"),
        (lambda api: api.forecast_job(FILE | {"epochs": 0}), "epochs: "),
        (lambda api: api.forecast({"drain": 1}), "drain"),
        (lambda api: api.forecast({"cancel": ["nobody"]}), "there is no job 'nobody'"),
        (lambda api: api.cancel("nobody"), "there is no job 'nobody'"),
        (lambda api: api.get_job("../status"), r"there is no job '\.\./status'"),
        (lambda api: api.hold(".."), r"there is no job '\.\.'"),
        (lambda api: api.hold(""), "there is no job ''"),
        (lambda api: api.hold("\udcff"), r"there is no job '\\udcff'"),
        *(
            (lambda api, budget=budget: api.set_budget("1", budget), "is not a valid budget")
            for budget in (-1.0, 0.0, 1e300)
        ),
        (lambda api: api.update_tenant("a", {"budget": 0}), "budget: "),
        (lambda api: api.update_tenant("a", {"window_hours": 0.001}), "window_hours: 0.001 is out"),
        (lambda api: api.update_tenant("a", {"gpus": 4}), "gpus: is not a field of "),
        *(
            (lambda api, node=node: api.drain(node), f"there is no node '{node}'")
            for node in ("4", "99", "4" * 90)
        ),
        (lambda api: api.add_node({"name": "b"}), "name: has no effect on a virtual cluster"),
        (lambda api: api.add_node({"gpus": 0}), "gpus: "),
        (lambda api: api.add_node({"gpu_type": "x"}), "gpu_type: the service has no throughputs"),
        (lambda api: api.explain("2"), "job 2: is not in run"),
        (lambda api: next(iter(api.read_logs("1"))), "is on a virtual cluster"),
    ],
)
def test_what_is_refused_is_refused_alike(
    furnished: SimpleNamespace, ask: Callable[[AuthorizedApi], object], problem: str
) -> None:
    for api in furnished.apis:
        with pytest.raises(InputError, match=problem):
            ask(api)
    with Inbox(furnished.warehouse) as inbox:
        assert inbox.last() == 3


@pytest.fixture(scope="module")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A furnished service and both apis."""
    warehouse = tmp_path_factory.mktemp("refused")
    tokens = furnish(warehouse)
    with served(warehouse) as url, open_local(warehouse) as here, Client(url, SECRET) as there:
        yield SimpleNamespace(warehouse=warehouse, url=url, tokens=tokens, apis=(here, there))


def test_followed_events_come_once_and_in_order(opens: Opens, tmp_path: Path) -> None:
    furnish(tmp_path)
    api = opens(tmp_path)
    known = [*api.list_events()]
    followed = api.read_events(follow=True)
    assert [*islice(followed, len(known))] == known
    with Inbox(tmp_path) as inbox:
        number = inbox.submit(replace(JOB, name="later")).number
    writer = Thread(target=go, args=(tmp_path, 1))
    writer.start()
    new = [next(followed)]
    writer.join()
    more = [row for row in api.list_events() if row not in known]
    new += islice(followed, len(more) - 1)
    assert new == more
    assert ("submit", number) in [(row.kind, row.job_id) for row in new]


def test_a_stream_goes_on_after_the_last_event_that_is_known(furnished: SimpleNamespace) -> None:
    url, bearer = furnished.url, {"Authorization": f"Bearer {furnished.tokens['tenant']}"}
    with Client(url, furnished.tokens["tenant"]) as own:
        rows = [*own.list_events()]
    assert {row.job_id for row in rows} == {1}

    def read(known: str, number: int) -> list[tuple[str, int]]:
        headers = bearer | ({"Last-Event-ID": known} if known else {})
        with httpx.stream("GET", f"{url}/v1/events/stream", headers=headers) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines = (line for line in answer.iter_lines() if line.startswith(("id", "data")))
            found = []
            for _ in range(number):
                data = json.loads(next(lines).removeprefix("data: "))
                found.append((next(lines).removeprefix("id: "), data))
            return found

    whole = read("", len(rows))
    assert [data["kind"] for _, data in whole] == [row.kind for row in rows]
    assert read(whole[0][0], len(rows) - 1) == whole[1:]
    for known in ("x", "1", "1.-1", "1.1.1", "9" * 50 + ".0"):
        answer = httpx.get(
            f"{url}/v1/events/stream",
            headers=bearer | {"Last-Event-ID": known},
            timeout=HANG_SECONDS,
        )
        assert (answer.status_code, answer.json()["place"]) == (422, "Last-Event-ID")


def test_an_address_that_would_tell_the_token_is_refused() -> None:
    for url in ("http://gpu1.example:4200", "ftp://127.0.0.1", "127.0.0.1:4200", "http://a@b", ""):
        with pytest.raises(InputError, match="url: "):
            Client(url, "token")
    assert Client("https://gpu1.example/live", "token").url == "https://gpu1.example"


def test_no_proxy_gets_a_token_of_this_machine(
    furnished: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # where nobody answers
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, "gpu1.example")
    with Client(furnished.url, SECRET) as direct:
        assert direct.get_status().rounds
    for name, value in private_env().items():  # of Prefect's clients and all our processes
        monkeypatch.setenv(name, value)
    for host in ("127.0.0.1", "localhost", "gpu1.example"):
        assert proxy_bypass(host)
    assert not proxy_bypass("gpu2.example")


def test_who_is_not_there_or_no_service_is_a_line(
    furnished: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        Client("http://127.0.0.1:9", "token") as nobody,
        pytest.raises(WarehouseBusy, match="does not answer"),
    ):
        nobody.get_status()
    with Client(furnished.url, "token") as stranger:
        with pytest.raises(InputError, match="token: is not known"):
            stranger.get_status()
        with pytest.raises(InputError, match="token: is not known"):
            next(stranger.read_events(follow=True))
    monkeypatch.setattr(client_module, "MOST_LOST", 1)
    lost = Client("http://127.0.0.1:9", "token", sleep=lambda seconds: None)
    with lost, pytest.raises(WarehouseBusy, match="does not answer"):
        next(lost.read_events(follow=True))


def test_a_stream_whose_place_is_taken_waits_for_it(
    furnished: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "QUIET_SECONDS", 0.4)  # each silence is a lost connection
    with Tokens(furnished.warehouse) as tokens:
        token = tokens.add("many", Role.READER)
    url, bearer = f"{furnished.url}/v1/events/stream", {"Authorization": f"Bearer {token}"}
    places, paused = ExitStack(), list[float]()

    def sleep(seconds: float) -> None:
        paused.append(seconds)
        if len(paused) == 1:
            for _ in range(MOST_OF_ONE):
                while places.enter_context(
                    httpx.stream("GET", url, headers=bearer, timeout=HANG_SECONDS)
                ).is_error:
                    time.sleep(POLL_SECONDS)
            late = places.enter_context(Client(furnished.url, token))
            with pytest.raises(WarehouseBusy, match="of this token are open"):
                next(late.read_events(follow=True))
        elif len(paused) == 2:
            places.close()
            go(furnished.warehouse, 1)

    with places, Client(furnished.url, token, sleep=sleep) as api:
        known, followed = [*api.list_events()], api.read_events(follow=True)
        assert [*islice(followed, len(known))] == known
        assert next(followed).round > known[-1].round
        assert len(paused) >= 2


def test_a_token_that_is_removed_ends_what_it_follows(furnished: SimpleNamespace) -> None:
    with Tokens(furnished.warehouse) as tokens:
        token = tokens.add("leaving", Role.READER)
        with Client(furnished.url, token) as leaving:
            followed = leaving.read_events(follow=True)
            next(followed)
            tokens.remove("leaving")
            with pytest.raises(InputError, match="token: is not known"):
                for _ in followed:
                    pass
