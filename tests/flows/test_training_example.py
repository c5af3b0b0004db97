"""The example of a training job as its user runs it: registry, code, data, endpoint, notice."""

import json
from pathlib import Path

import pytest
from prefect.blocks.notifications import CustomWebhookNotificationBlock
from prefect.client.orchestration import SyncPrefectClient

from flows.api.client import Client
from flows.api.code import store_fields
from flows.api.notices import Told, name_tenant_block
from flows.api.queries import ServiceQueries
from flows.api.submission import read_job_fields
from flows.deployments.alerting import make_automations, tell
from flows.scheduler.options import ServiceOptions
from harness.dockerd import OUTSIDE, PLAIN, Dockerd, mounts, node_table, python
from harness.waiting import HANG_SECONDS, wait_for
from tests.containers.test_grants import (
    PASSWORD,
    PULLED,
    REGISTRY,
    USER,
    log_in,
    registry,
    serving_outside,
)
from tests.flows.served import SECRET, drive, served
from tests.flows.test_alerts import listening
from warehouse.inbox.inbox import Inbox

EXAMPLE = Path(__file__).parents[2] / "examples" / "training"

OUTSIDERS = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
class Proxy(BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.path == "http://data.example/points.csv"
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"".join(b"%d,%d\\n" % (x, 2 * x + 1) for x in range(3)))
    def do_POST(self):
        assert self.path == "http://tracker.example/losses"
        with open(sys.argv[1], "ab") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\\n")
        self.send_response(200)
        self.end_headers()
HTTPServer(("", 8098), Proxy).serve_forever()
"""
"""A proxy on a machine outside that stands for the data's host and the endpoint."""


def test_the_example_trains_logs_resumes_and_notifies_its_owner(
    client: SyncPrefectClient,
    daemon: Dockerd,
    storage: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read = ", ".join(f'"{path}"' for path in mounts())
    (file := tmp_path / "cluster.toml").write_text(
        f'''storage = "{storage}"
images = ["{REGISTRY}/team/*"]
pull = true
user = "1000:1000"
mounts = [{read}]
grace_seconds = 20
[networks.internet]
docker = "egress"
proxy = "http://{OUTSIDE}:8098"
{node_table("one", daemon.endpoint)}'''
    )
    options = ServiceOptions(cluster=file, round_seconds=1.0, restart_seconds=0.5, driver="plain")
    fields = read_job_fields(EXAMPLE / "job.toml", {"image": PULLED})
    fields |= {"command": [python(), "train.py"]}
    fields["environment"] |= {"EPOCHS": "60", "REST": "0.1"}
    losses = tmp_path / "losses"
    outsiders = python(), "-c", OUTSIDERS, str(losses)
    images, network = daemon.client().images, daemon.client().networks.create("egress")
    with (
        registry(daemon, tmp_path),
        serving_outside(daemon, 8098, *outsiders),
        listening() as (chat, heard),
    ):
        block = name_tenant_block("default")
        webhook = {"url": chat, "json_data": {"text": "{{body}}"}, "timeout": HANG_SECONDS}
        CustomWebhookNotificationBlock(name="chat", **webhook).save(block)
        make_automations()
        log_in(tmp_path, monkeypatch)
        images.get(PLAIN).tag(PULLED)
        images.push(PULLED, auth_config={"username": USER, "password": PASSWORD})
        images.remove(PULLED)
        with Inbox(tmp_path) as inbox, served(tmp_path) as url, Client(url, SECRET) as service:

            def go(rounds: int = 1) -> None:
                drive(tmp_path, inbox, options, rounds)

            def said() -> list[str]:
                lines = b"".join(service.read_logs("fit")).decode().splitlines()
                return [line for line in lines if "epoch" in line]

            go(0)
            service.submit(store_fields(fields, service, EXAMPLE))
            while not losses.exists():  # while its image is pulled, and its data fetched
                go()
            with ServiceQueries(tmp_path) as queries:
                known = tell(tmp_path, queries, Told())
            service.requeue("fit")
            while service.get_job("fit").status != "finished":
                go()
            first, stopped, again, last = said()
            with ServiceQueries(tmp_path) as queries:
                tell(tmp_path, queries, known)
            notices = wait_for(lambda: heard, lambda found: len(found) == 2, every=0.2)
        CustomWebhookNotificationBlock.delete(block)
    network.remove()
    rows = [json.loads(line) for line in losses.read_text().splitlines()]
    assert [row["epoch"] for row in rows] == list(range(1, 61))
    assert rows[-1]["loss"] < 0.1 * rows[0]["loss"]
    assert (first, last) == ("from epoch 0", "to epoch 60")
    assert sorted(json.loads(notice)["text"] for notice in notices) == [
        "job 1 (fit) has ended: finished",
        "job 1 (fit) has started on 1 GPU",
    ]
    assert stopped.removeprefix("to") == again.removeprefix("from")
