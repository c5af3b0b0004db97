"""The live page over real HTTP: access control, and attacks of strangers."""

import re
import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from markupsafe import escape

from flows.runs.job_file import JobFile
from flows.web.backend import ServiceBackend
from flows.web.page.app import Page
from flows.web.page.views import MOST_LISTED
from harness.waiting import HANG_SECONDS
from tests.flows.served import SECRET, served
from tests.flows.test_api import ACCESS as API
from tests.flows.test_api import CALLERS, furnish
from tests.flows.test_scheduler import JOB, go
from warehouse.inbox.inbox import FILE as DATABASE
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens

pytestmark = pytest.mark.process

FOREIGN = "evil.example"

FORM = {
    "model": "conv-small",
    "batch_size": "32",
    "epochs": "5",
    "environment": "A=1\nB=2",
    "do": "submit",
}
"""A job as the form sends it, empty fields included."""


class Browser:
    """A browser without scripts, which keeps cookies.

    Attributes:
        client: What it asks with.
    """

    def __init__(self, url: str) -> None:
        self.client = httpx.Client(base_url=url, timeout=HANG_SECONDS, verify=False)

    def get(self, path: str = "/live", **more: Any) -> httpx.Response:
        return self.client.get(path, **more)

    def send(self, path: str, fields: dict[str, str] | None = None, **more: Any) -> httpx.Response:
        """Send a form as a browser does, with its origin."""
        origin = {"Origin": str(self.client.base_url).rstrip("/")}
        return self.client.post(path, data=fields or {}, headers=origin, **more)

    def log_in(self, token: str) -> httpx.Response:
        return self.send("/live/login", {"token": token, "to": "/live"})


@contextmanager
def showing(warehouse: Path) -> Iterator[SimpleNamespace]:
    """A furnished service, served, and a browser of each caller."""
    tokens = furnish(warehouse)
    with served(warehouse) as url, ExitStack() as opened:
        browsers = {}
        for caller in CALLERS:
            browsers[caller] = Browser(url)
            opened.enter_context(browsers[caller].client)
            if caller != "none":
                done = browsers[caller].log_in(tokens.get(caller, SECRET))
                assert (done.status_code, done.headers["location"]) == (303, "/live"), done.text
        yield SimpleNamespace(warehouse=warehouse, url=url, of=browsers, tokens=tokens)


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """A service shared by tests that do not depend on its state."""
    with showing(tmp_path_factory.mktemp("page")) as service:
        yield service


def last(shown: SimpleNamespace) -> int:
    with Inbox(shown.warehouse) as inbox:
        return inbox.last()


ACCESS: dict[tuple[str, str], tuple[int, ...]] = {
    # method, path: the answers to none, reader, tenant a, tenant c, operator, the secret
    ("GET", "/live"): (401, 200, 200, 200, 200, 200),
    ("GET", "/live/whatif"): (401, 200, 200, 200, 200, 200),
    ("GET", "/live/whatif?drain=1&cancel=1"): (401, 200, 403, 403, 200, 200),
    ("GET", "/live/whatif?hold=1"): (401, 200, 200, 404, 200, 200),
    ("GET", "/live/whatif?budget=a%3D2"): (401, 200, 403, 403, 200, 200),
    ("GET", "/live/whatif?budget=x"): (401, 422, 422, 422, 422, 422),
    ("GET", "/live/submit"): (401, 200, 200, 200, 200, 200),
    ("POST", "/live/submit"): (401, 403, 303, 303, 303, 303),
    ("POST", "/live/submit?tenant=a"): (401, 403, 303, 403, 303, 303),
    ("POST", "/live/submit?do=forecast"): (401, 200, 200, 200, 200, 200),
    ("POST", "/live/submit?do=foresee"): (401, 400, 400, 400, 400, 400),
    ("POST", "/live/submit?epochs=none"): (401, 422, 422, 422, 422, 422),
    ("GET", "/live/jobs"): (401, 200, 200, 200, 200, 200),
    ("GET", "/live/jobs/1"): (401, 200, 200, 404, 200, 200),
    ("GET", "/live/jobs/2"): (401, 200, 404, 404, 200, 200),
    ("GET", "/live/jobs/99"): (401, 404, 404, 404, 404, 404),
    ("GET", "/live/jobs/1/logs"): (401, 422, 422, 404, 422, 422),  # on a virtual cluster
    ("GET", "/live/jobs/2/logs"): (401, 422, 404, 404, 422, 422),
    **{
        ("POST", f"/live/jobs/{job}/{kind}"): row
        for kind in ("cancel", "hold", "release", "requeue")
        for job, row in (
            ("1", (401, 403, 303, 404, 303, 303)),
            ("2", (401, 403, 404, 404, 303, 303)),
        )
    },
    ("POST", "/live/jobs/1/budget"): (401, 404, 404, 404, 404, 404),
    **{
        ("POST", f"/live/nodes/{node}/{kind}"): (401, 403, 403, 403, 303, 303)
        for kind in ("drain", "cordon", "uncordon", "remove")
        for node in (1, 2)
    },
    ("POST", "/live/nodes/1/add"): (401, 404, 404, 404, 404, 404),
    ("POST", "/live/nodes"): (401, 403, 403, 403, 303, 303),
}
"""Addresses whose forms for sessions are tested separately."""


@pytest.mark.parametrize("asked", ACCESS, ids=" ".join)
def test_each_role_at_each_address(shown: SimpleNamespace, asked: tuple[str, str]) -> None:
    method, path = asked
    for caller, expected in zip(CALLERS, ACCESS[asked], strict=True):
        before, browser = last(shown), shown.of[caller]
        way, _, given = path.partition("?")
        fields = FORM | dict(parse_qsl(given)) if way == "/live/submit" else {}
        answer = browser.get(path) if method == "GET" else browser.send(way, fields)
        assert answer.status_code == expected, (caller, answer.text)
        assert last(shown) == before + (expected == 303), caller


def test_the_table_has_every_address(shown: SimpleNamespace) -> None:
    for route in Page(ServiceBackend(shown.warehouse, SECRET), SECRET).routes:
        if route.path not in ("/live/login", "/live/logout"):
            pattern = re.compile(re.sub(r"\{\w+\}", r"(\\w+)", route.path))
            rows = [pattern.fullmatch(path) for how, path in ACCESS if how in (route.methods or ())]
            tried = {row[1] if row.groups() else "" for row in rows if row}
            assert ({"1", "2"} if "{" in route.path else {""}) <= tried, route.path


def test_the_form_takes_what_a_jobs_file_takes(shown: SimpleNamespace) -> None:
    page = shown.of["operator"].get("/live/submit").text
    fields = {*re.findall(r'<(?:input|select|textarea) (?:[^>]* )?name="(\w+)"', page)}
    assert fields - {"key"} == {*JobFile.model_fields} - {"seconds", "regimes"}
    (key,) = re.findall('name="key" value="([^"]*)"', page)
    ask = shown.of["tenant"].send
    first = int(ask("/live/submit", FORM).headers["location"].rpartition("/")[2])
    given = FORM | {"key": key, "name": "x", "mode": "gns", "max_seconds": "9e3", "array": "0-1"}
    given |= {
        "environment": " A= 1 \x0b\r\n\r\nB=2",
        "opportunistic": "true",
        "after": f"{first} '{first}'",
    }
    texts = dict.fromkeys(JobFile.model_fields, "") | given
    sent = [ask("/live/submit", texts) for _ in range(2)]  # a double click
    assert {answer.headers["location"] for answer in sent} == {f"/live/jobs/{first + 1}"}
    with Inbox(shown.warehouse) as inbox:
        tasks = [entry.job for entry in inbox.entries_after(first) if entry.job]
    assert [spec.tenant for spec in tasks] == ["a", "a"]
    (spec, _), options = tasks, tasks[0].options
    assert (spec.name, spec.mode.value, spec.epochs, spec.max_seconds) == ("x", "gns", 5, 9e3)
    assert (spec.environment, options.after) == (("A= 1 \x0b", "B=2"), (first,))
    assert spec.opportunistic
    edited = ask("/live/submit", texts | {"name": "y"})  # the form edited and sent again
    assert edited.headers["location"] == f"/live/jobs/{first + 3}"


def test_a_job_of_the_form_that_is_refused_is_there_to_be_mended(shown: SimpleNamespace) -> None:
    before, ask = last(shown), shown.of["tenant"].send
    for field, text, said in (
        ("epochs", "5.5", "job: epochs:"),
        ("name", '"><b>', "is not a name"),
        ("command", "echo 'a", "job: command: is refused: No closing quotation"),
        ("environment", "A", "job: environment: &#39;A&#39; is not NAME=VALUE"),
        ("environment", "A=1\nA=2", "environment: &#39;A&#39; is given twice"),
        ("model", "conv-smal", "conv-small"),
        ("scale_factor", "640", "gpus: 640 are requested"),
        ("image", "b" * 5000, "job: image: has more than 4,000 characters"),
    ):
        answer = ask("/live/submit", FORM | {field: text})
        assert answer.status_code == 422
        assert said in answer.text.partition('role="alert">')[2].partition("</p>")[0]
        assert escape(text) in answer.text
        assert "Traceback" not in answer.text
    assert last(shown) == before


def test_all_jobs_are_found_by_what_is_said_of_them(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        for number in range(MOST_LISTED + 5):
            inbox.submit(replace(JOB, name=f"n{number}", tenant="ab"[number % 2]), by="Ann")
        inbox.submit(replace(JOB, name="<b>last", tenant="c"))
        go(tmp_path, 1)
        inbox.submit(replace(JOB, name="later", tenant="c"))
    tokens = {}
    with Tokens(tmp_path) as made:
        tokens["c"] = made.add("carol", Role.TENANT, "c")
    with served(tmp_path) as url:
        opened = {name: Browser(url) for name in ("all", "c")}
        for name, browser in opened.items():
            browser.log_in(tokens.get(name, SECRET))

        def find(asked: str, caller: str = "all") -> list[str]:
            page = opened[caller].get(f"/live/jobs?{asked}").text
            return re.findall(r'<a href="/live/jobs/\d+">\d+ ([^<]*)</a>', page)

        assert find("search=later") == ["later"]
        assert find("status=accepted") == ["later"]
        assert find("search=LAST&tenant=c") == ["&lt;b&gt;last"]
        assert find("search=n7+ann&tenant=b")[-1] == "n7"
        assert find("search=n7+ann&tenant=a") == [f"n{n}" for n in (78, 76, 74, 72, 70)]
        assert len(find("search=ann")) == MOST_LISTED
        assert find("search=ann&page=2") == ["n4", "n3", "n2", "n1", "n0"]
        assert find("search=ann&page=99") == find("search=ann&page=2")
        assert find("search=ann&page=x") == find("search=ann&page=0") == find("search=ann")
        assert "Page 2 of 2" in opened["all"].get("/live/jobs?search=ann&page=2").text
        assert find("", "c") == ["later", "&lt;b&gt;last"]
        assert find("search=ann", "c") == []
        for browser in opened.values():
            browser.client.close()


def test_what_tenants_and_jobs_cost_is_there(shown: SimpleNamespace) -> None:
    asked = shown.of["reader"].get
    assert "market cost</th>" in asked().text
    costs = r"<dt>Cost</dt>.*0\.00.* GPU-hours; .* in the market"
    assert re.search(costs, asked("/live/jobs/1").text)


def test_it_says_from_when_on_a_job_goes_before_all_others(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        for name in ("first", "second", "third"):
            inbox.submit(replace(JOB, name=name))
        go(tmp_path, 1)
    with served(tmp_path) as url, ExitStack() as opened:
        browser = Browser(url)
        opened.enter_context(browser.client)
        browser.log_in(SECRET)
        (last,) = (part for part in browser.get().text.split("<tr>") if ">waits</td>" in part)
        assert re.search(r", first by [\d.]+ (s|min|h)</td>", last)
        (job,) = re.findall(r"/live/jobs/\d+", last)
        assert "before all others: whatever arrives" in browser.get(job).text


def test_tenants_see_their_own_jobs_only(shown: SimpleNamespace) -> None:
    seen = {caller: shown.of[caller].get().text for caller in ("reader", "tenant", "other")}
    assert "theirs" in seen["reader"]
    assert "theirs" not in seen["tenant"] + seen["other"]
    assert "1 mine" in seen["tenant"]
    assert "mine" not in seen["other"]
    assert seen["other"].count(': held">•') == 2  # without its job
    assert "<button>Cancel" in shown.of["tenant"].get("/live/jobs/1").text
    assert "<button>Cancel" not in shown.of["reader"].get("/live/jobs/1").text


@pytest.mark.parametrize("attack", ["foreign origin", "foreign host", "no secret", "no origin"])
def test_an_attack_is_refused_by_api_and_page(shown: SimpleNamespace, attack: str) -> None:
    """Each attack lacks only the part that it is named after; a complete request succeeds."""
    url, browser = shown.url, shown.of["operator"]
    cookie = {"Cookie": "; ".join(f"{one}={text}" for one, text in browser.client.cookies.items())}
    bearer = {"Authorization": f"Bearer {shown.tokens['operator']}"}
    origin, before = {"Origin": url}, last(shown)
    refused = 403
    if attack == "foreign origin":
        origin = {"Origin": f"http://{FOREIGN}"}
    elif attack == "foreign host":
        origin = {"Host": f"{FOREIGN}:{url.rpartition(':')[2]}"}
    elif attack == "no secret":
        cookie, bearer, refused = {}, {}, 401
    elif attack == "no origin":
        origin, bearer = {}, cookie  # a browser sends cookies by itself: the API ignores them
    api_refused = 401 if attack == "no origin" else refused
    with httpx.Client(base_url=url, headers=origin, timeout=HANG_SECONDS, verify=False) as stranger:
        for path in {path.partition("?")[0] for how, path in ACCESS if how == "POST"}:
            page = stranger.post(path, data=FORM, headers=cookie)
            assert page.status_code == refused, (path, page.text)
        for method, path, body in API:
            asked = stranger.request(method, f"/v1{path}", content=body, headers=bearer)
            public = path == "/openapi.json" and not attack.startswith("foreign")  # to everybody
            expected = 200 if public else api_refused
            assert asked.status_code == expected, (method, path, asked.text)
        if attack != "no origin":  # browsers name none when they read
            for path in (path for how, path in ACCESS if how == "GET"):
                assert stranger.get(path, headers=cookie).status_code == refused, path
    assert last(shown) == before
    allowed = httpx.post(
        f"{url}/live/jobs/1/hold",
        headers={"Origin": url} | cookie,
        timeout=HANG_SECONDS,
    )
    assert allowed.status_code == (401 if attack == "no secret" else 303)


def test_a_session_is_a_cookie_for_pages_of_ours_alone(shown: SimpleNamespace) -> None:
    origin = {"Origin": shown.url}
    with httpx.Client(
        base_url=shown.url, timeout=HANG_SECONDS, verify=False, headers=origin
    ) as client:
        answer = client.get("/live")
        assert "set-cookie" not in answer.headers
        policy = answer.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; style-src 'sha256-")
        assert "unsafe" not in policy
        assert answer.headers["x-frame-options"] == "DENY"
        wrong = client.post("/live/login", data={"token": "guess", "to": "//evil"})
        assert (wrong.status_code, client.get("/live").status_code) == (401, 401)
        right = client.post(
            "/live/login",
            data={"token": shown.tokens["reader"], "to": "//evil.example/live"},
        )
        given = {*right.headers["set-cookie"].split("; ")}
        assert {"HttpOnly", "Path=/live", "SameSite=strict"} <= given
        assert (right.status_code, right.headers["location"]) == (303, "/live")
        assert shown.tokens["reader"] not in right.headers["set-cookie"]


def test_a_session_ends_with_its_token_or_by_itself(shown: SimpleNamespace) -> None:
    with Tokens(shown.warehouse) as tokens:
        leaving = Browser(shown.url)
        leaving.log_in(tokens.add("leaving", Role.READER))
        assert leaving.get().status_code == 200
        tokens.remove("leaving")
        assert leaving.get().status_code == 401
        leaving.log_in(tokens.add("staying", Role.READER))
        assert leaving.send("/live/logout").status_code == 303
        assert leaving.get().status_code == 401
        leaving.client.close()


def test_a_database_that_is_away_is_a_line(tmp_path: Path) -> None:
    with Tokens(tmp_path) as tokens:
        token = tokens.add("ann", Role.OPERATOR)
    with served(tmp_path) as url, closing((browser := Browser(url)).client) as client:
        browser.log_in(token)
        page = browser.get("/live/whatif")
        assert (page.status_code, "has not started" in page.text) == (503, True)
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            database.execute("DROP TABLE shockwave_tokens")
        fields, origin = {"token": token, "do": "submit"}, {"Origin": url}
        posts = "/live/submit", "/live/nodes", "/live/jobs/1/hold", "/live/login"
        for page in (
            browser.get(),
            *(client.post(path, data=fields, headers=origin) for path in posts),
        ):
            assert page.status_code == 503
            assert "does not answer" in page.text.partition('role="alert">')[2]


def test_a_page_that_has_not_changed_is_not_sent_again(tmp_path: Path) -> None:
    with showing(tmp_path) as service:
        browser = service.of["reader"]
        tag = browser.get().headers["etag"]
        again = browser.get(headers={"If-None-Match": tag})
        assert (again.status_code, again.content) == (304, b"")
        go(tmp_path, 1)
        fresh = browser.get(headers={"If-None-Match": tag})
        assert (fresh.status_code, fresh.headers["etag"] != tag) == (200, True)


def test_an_invalid_form_is_refused_in_a_line(shown: SimpleNamespace) -> None:
    browser = shown.of["operator"]
    for body in (b"", b"\xff" * 50, b"token=%ff&token=\x00", b"token=" + b"x" * 2**17):
        answer = browser.client.post(
            "/live/login",
            content=body,
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Origin": shown.url,
            },
        )
        assert answer.status_code in (400, 401, 413), answer.text
        assert "Traceback" not in answer.text
