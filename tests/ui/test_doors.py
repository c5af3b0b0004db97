"""Strangers against `shockwave up`: other local users, and foreign pages in the user's browser."""

import json
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Error

from harness.up import Up
from tests.ui.attacks import (
    ATTACKS,
    FOREIGN,
    allowed,
    ask,
    attacked,
    authorization,
    headers_of,
)
from tests.ui.browser import browser, log_in

pytestmark = pytest.mark.prefect


def deployments(up: Up) -> list[dict[str, Any]]:
    """All deployments, without what the runner renews by itself."""
    status, body = ask(up.access, "POST", "/api/deployments/filter", {}, allowed(up.access))
    assert status == 200
    kept = ("id", "name", "pull_steps", "entrypoint", "path", "parameters", "description")
    found = [{name: deployment[name] for name in kept} for deployment in json.loads(body)]
    return sorted(found, key=lambda deployment: str(deployment["name"]))


def flow_runs(up: Up) -> list[str]:
    """The ids of all flow runs but those that Prefect's scheduler announces."""
    status, body = ask(up.access, "POST", "/api/flow_runs/filter", {}, allowed(up.access))
    assert status == 200
    return sorted(run["id"] for run in json.loads(body) if not run["auto_scheduled"])


def test_the_secret_is_of_its_user_only_and_stands_in_no_command_line(up: Up) -> None:
    file = Path(up.env["PREFECT_HOME"]) / "shockwave-auth"
    assert file.stat().st_mode & 0o777 == 0o600
    assert str(file) in up.log.read_text()
    password = up.access.secret.partition(":")[2]
    assert len(password) >= 43  # 32 random bytes
    for number in (up.process.pid, *up.descendants()):
        assert password not in Path(f"/proc/{number}/cmdline").read_text()
    assert password not in up.log.read_text()


def test_a_stranger_is_refused_and_nothing_happens(up: Up) -> None:
    attacked(up.access)


@pytest.mark.parametrize("attack", ATTACKS)
def test_no_stranger_s_code_is_run(up: Up, tmp_path: Path, attack: str) -> None:
    before, ran, mark = deployments(up), flow_runs(up), tmp_path / "mark"
    assert before
    for deployment in before:
        headers = headers_of(up.access, attack)
        step = {"prefect.deployments.steps.run_shell_script": {"script": f"touch {mark}"}}
        target = f"/api/deployments/{deployment['id']}"
        for method, path, body in (
            ("PATCH", target, {"pull_steps": [step]}),
            ("POST", f"{target}/create_flow_run", {"state": {"type": "SCHEDULED"}}),
            ("DELETE", target, None),
        ):
            status, _ = ask(up.access, method, path, body, headers)
            assert status in (401, 403), (attack, method, status)
        status, _ = ask(
            up.access,
            "PATCH",
            target,
            {"description": deployment["description"]},
            allowed(up.access),
        )
        assert status == 204  # the same request of its own user
    assert deployments(up) == before
    assert flow_runs(up) == ran
    assert not mark.exists()


@pytest.mark.parametrize("path", ["/reports/page.html", "/v1/jobs"])
def test_its_own_pages_are_for_its_user_only(up: Up, path: str) -> None:
    secret = authorization(up.access)
    status, body = ask(up.access, "GET", path, headers=secret)
    assert status == 200
    if path.endswith(".html"):
        assert body == (up.warehouse / "reports/page.html").read_bytes()
    assert ask(up.access, "GET", path)[0] == 401
    assert ask(up.access, "GET", path, headers={"Authorization": "Basic Z3Vlc3NlZA=="})[0] == 401
    host = f"{FOREIGN}:{up.port}"
    assert ask(up.access, "GET", path, headers=secret | {"Host": host})[0] == 403
    for method in ("GET", "POST"):
        foreign = secret | {"Origin": f"http://{host}"}
        assert ask(up.access, method, path, headers=foreign)[0] == 403
    assert ask(up.access, "POST", path)[0] in (401, 403)


def test_the_live_page_is_for_who_logs_in(up: Up) -> None:
    status, body = ask(up.access, "GET", "/live", headers=authorization(up.access))
    assert (status, b'action="/live/login"' in body) == (401, True)  # it takes sessions alone


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[int]:
    """The port of a web server that has pages of strangers."""
    (tmp_path / "index.html").write_text("<title>a stranger's</title>")
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    handler.func.log_message = lambda *args: None  # type: ignore[attr-defined]
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


TRIES = """async ([url, deployment, mark]) => {
  const step = {"prefect.deployments.steps.run_shell_script": {script: "touch " + mark}};
  const target = url + "/api/deployments/" + deployment;
  const patch = JSON.stringify({pull_steps: [step]});
  const tried = {};
  const attempt = async (name, action) => {
    try { tried[name] = await action(); } catch (error) { tried[name] = "refused"; }
  };
  const send = (path, asked) => async () => {
    const answer = await fetch(path, {credentials: "include", ...asked});
    return answer.type == "opaque" ? "opaque" : answer.status;
  };
  const json = {"Content-Type": "application/json"};
  const all = {method: "POST", headers: json, body: "{}"};
  await attempt("read", send(url + "/api/flows/filter", all));
  await attempt("token", send(url + "/api/csrf-token?client=stranger"));
  await attempt("patch", send(target, {method: "PATCH", headers: json, body: patch}));
  await attempt("start", send(target + "/create_flow_run", {
    method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: "{}"}));
  await attempt("delete", send(target, {method: "DELETE"}));
  await attempt("report", send(url + "/reports/page.html"));
  await attempt("stream", () => new Promise((resolve, reject) => {
    const socket = new WebSocket(url.replace("http", "ws") + "/api/events/out", "prefect");
    socket.onopen = () => resolve("open");
    socket.onerror = () => reject();
  }));
  await attempt("image", () => new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = () => resolve("shown");
    image.onerror = () => reject();
    image.src = url + "/ico/favicon-32x32.png";
  }));
  const form = document.createElement("form");
  form.action = target + "/create_flow_run"; form.method = "POST"; form.target = "frame";
  const frame = document.createElement("iframe");
  frame.name = "frame";
  document.body.append(frame, form);
  const loaded = new Promise(resolve => { frame.onload = resolve; });
  form.submit();
  await loaded;
  const shown = document.createElement("iframe");
  const there = new Promise(resolve => { shown.onload = resolve; });
  shown.src = url + "/deployments";
  document.body.append(shown);
  await there;
  return tried;
}"""


@pytest.mark.browser
def test_one_login_opens_the_page_and_the_ui(up: Up) -> None:
    with browser() as opened:
        page = opened.new_page()
        log_in(page, up.access)
        page.goto(f"{up.url}/live")
        page.wait_for_selector("form[action='/live/logout']")
        page.get_by_role("button", name="Log out").click()
        page.wait_for_selector("form.login")
        page.goto(f"{up.url}/deployments")
        page.get_by_placeholder("admin:pass").wait_for()  # that ended both

        page.goto(f"{up.url}/live")
        page.get_by_label("Token").fill("somebody:else")
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("[role=alert]")
        assert page.evaluate("localStorage.getItem('prefect-password')") is None
        page.get_by_label("Token").fill(up.access.secret)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_selector("form[action='/live/logout']")
        with page.expect_response(lambda answer: "/api/deployments/" in answer.url) as found:
            page.goto(f"{up.url}/deployments")
        assert found.value.ok


@pytest.mark.browser
def test_a_foreign_page_that_its_user_visits_can_do_nothing(
    up: Up, elsewhere: int, tmp_path: Path
) -> None:
    before, ran, mark = deployments(up), flow_runs(up), tmp_path / "mark"
    user, password = up.access.secret.split(":")
    with browser(f"--host-resolver-rules=MAP {FOREIGN} 127.0.0.1") as opened:
        context = opened.new_context(http_credentials={"username": user, "password": password})
        own = context.new_page()
        log_in(own, up.access)  # its user is logged in, in the UI and where the browser asks
        assert own.goto(f"{up.url}/reports/page.html")
        assert own.title() == "a report"
        with pytest.raises(
            Error, match="SecurityError"
        ):  # nor can a report's script read the UI's keys
            own.evaluate("localStorage.length")

        page = context.new_page()
        answers: list[tuple[str, str, int]] = []
        page.on(
            "response",
            lambda answer: answers.append(
                (answer.request.method, urlsplit(answer.url).path, answer.status)
            ),
        )
        page.goto(f"http://{FOREIGN}:{elsewhere}/index.html")
        del answers[:]
        tried = page.evaluate(TRIES, [up.url, before[0]["id"], str(mark)])
        frames = [frame.url for frame in page.frames]
        rebound = page.goto(f"http://{FOREIGN}:{up.port}/api/csrf-token?client=stranger")
    assert tried.pop("start") in ("opaque", "refused")  # sent, and refused with 403
    assert set(tried.values()) == {"refused"}, tried
    create = f"/api/deployments/{before[0]['id']}/create_flow_run"
    sent = [status for method, path, status in answers if (method, path) == ("POST", create)]
    assert len(sent) == 2  # by script and by form
    assert set(sent) == {403}
    assert f"{up.url}/deployments" not in frames  # the UI is shown in no frame
    assert rebound
    assert rebound.status == 403

    assert deployments(up) == before
    assert flow_runs(up) == ran
    assert not mark.exists()
