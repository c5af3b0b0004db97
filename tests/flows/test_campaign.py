"""Campaigns: the same results on every runner and in Prefect, and nothing finished is redone."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from threading import Event, Thread

import pytest
from prefect.client.orchestration import SyncPrefectClient

from flows.campaigns import Runner
from flows.campaigns.campaign import campaign
from flows.campaigns.cells import CellStarts, expand_cells
from flows.campaigns.execution import CellsFailed, campaign_id, run_campaign
from flows.campaigns.plan import CampaignPlan, read_campaign
from flows.campaigns.runners import CLUSTERS
from flows.explain.replay import replay
from flows.explain.whatif import Change, whatif
from flows.prefect_server.access import Access
from flows.runs.simulation import simulate
from harness.up import PROGRAM, descendants, free_port, running
from harness.waiting import HANG_SECONDS, wait_for
from tests.flows.conftest import Command, tree
from tests.newcomer import elsewhere, in_terminal, lookups_of, newcomer
from warehouse.store.campaigns import read_cells
from warehouse.store.files import CellStatus
from warehouse.store.folder import place_of, records_folder
from warehouse.store.reader import Reader

pytestmark = [
    pytest.mark.prefect,
    # Prefect's pools and clusters leave sockets and processes to the interpreter's end.
    pytest.mark.filterwarnings("default"),
]

PLAN = """
name = "small"
policies = ["fifo", "shockwave"]
seeds = [1, 2]
[settings]
round_seconds = 1200
[[workloads]]
name = "drawn"
jobs = 3
[[clusters]]
name = "four"
gpus = 4
"""
LONGER = PLAN.replace("jobs = 3", "jobs = 8").replace("= 1200", "= 600")
BROKEN = PLAN.replace('"fifo"', '{policy = "fifo", parameters = {no-such = 1}}')
ROOT = Path(__file__).parents[2]
RAY_ALONE = ("--include-dashboard=false", "--include-log-monitor=false", "--no-monitor")
"""Options of a head without monitoring, of which each part takes half a second."""

RAY_TOO_LATE = "The current node timed out during startup"
"""Ray gives a node 30 s, which nothing changes, and a busy machine may need more."""


def plan(folder: Path, text: str = PLAN) -> Path:
    path = folder / "plan.toml"
    path.write_text(text)
    return path


@dataclass(frozen=True)
class Plain:
    """The cells as plain runs: their warehouse, and the run of each by name."""

    warehouse: Path
    runs: dict[str, str]

    @property
    def hashes(self) -> dict[str, str]:
        """The last hash of each."""
        reader = Reader(self.warehouse)
        return {cell: reader.records(run)[-1][1] for cell, run in self.runs.items()}


def simulated(folder: Path, text: str) -> Plain:
    cells = expand_cells(read_campaign(plan(folder, text)))
    return Plain(
        folder, {cell.name: simulate(CellStarts(folder).start(cell), folder) for cell in cells}
    )


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return simulated(tmp_path_factory.mktemp("plain"), PLAN)


@pytest.fixture(scope="module")
def longer(tmp_path_factory: pytest.TempPathFactory) -> Plain:
    return simulated(tmp_path_factory.mktemp("longer"), LONGER)


@pytest.fixture(scope="module")
def expected(plain: Plain) -> dict[str, str]:
    """The last hash by cell, of plain runs."""
    return plain.hashes


def hashes(warehouse: Path, asked: CampaignPlan) -> dict[str, str]:
    return {row.cell: row.hash for row in read_cells(warehouse, campaign_id(asked))}


@pytest.fixture(scope="module")
def ran(
    client: SyncPrefectClient, server: Access, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[Runner, bool], Path]:
    """Runs the campaign once on each runner, in Prefect or not; returns its warehouse."""

    @cache
    def run(runner: Runner, in_prefect: bool) -> Path:
        folder = tmp_path_factory.mktemp(runner)
        file = plan(folder, LONGER if runner is Runner.PROCESSES else PLAN)
        asked, warehouse = read_campaign(file), folder / "w"
        if runner in CLUSTERS:
            on_a_cluster_of_its_own(file, runner, warehouse, server)
        elif runner is Runner.PROCESSES:
            with a_worker_killed(warehouse):
                run_here(asked, runner, warehouse, in_prefect)
        else:
            run_here(asked, runner, warehouse, in_prefect)
        return warehouse

    return run


def run_here(asked: CampaignPlan, runner: Runner, warehouse: Path, in_prefect: bool) -> None:
    """Run a campaign with two workers of this machine."""
    if in_prefect:
        done = campaign(asked, runner, 2, None, warehouse)
    else:
        done = run_campaign(asked, runner, 2, warehouse)
    assert done == campaign_id(asked)


@contextmanager
def a_worker_killed(warehouse: Path) -> Iterator[None]:
    """Kill a worker of this process during a run, once within the context."""
    killed: list[int] = []
    over = Event()

    def kill_a_worker() -> None:
        while not (killed or over.is_set()):
            begun = records_folder(warehouse).glob("run=*-*/header.parquet")
            if any(not (header.parent / "round=all.parquet").exists() for header in begun):
                worker = multiprocessing.active_children()[0]
                worker.kill()
                killed.append(worker.pid or 0)
            time.sleep(0.005)

    killer = Thread(target=kill_a_worker, daemon=True)
    killer.start()
    try:
        yield
    finally:
        over.set()
        killer.join()
    assert killed


def on_a_cluster_of_its_own(file: Path, runner: Runner, warehouse: Path, server: Access) -> None:
    """Run a campaign as a new user in a terminal, without requests to other machines."""
    home, lookups = file.with_name("home"), file.with_name("lookups")
    env = newcomer(home, lookups) | server.client_env()
    # A cluster is as many processes as it has workers, and one is enough.
    command = [PROGRAM, "campaign", "run", file, "--runner", runner, "--workers", 1]
    command += ["--warehouse", warehouse]
    code, shown = in_terminal(command, file.parent, env)
    if code and RAY_TOO_LATE in " ".join(shown.split()):
        code, shown = in_terminal(command, file.parent, env)
    assert code == 0, shown
    assert "usage data" not in shown
    assert lookups_of(lookups)
    assert elsewhere(lookups) == []
    assert not (home / ".sdk_telemetry" / "notice_shown").exists()


@pytest.mark.parametrize(
    ("runner", "in_prefect"),
    [(Runner.THREADS, False), (Runner.PROCESSES, False), *((runner, True) for runner in Runner)],
)
def test_every_runner_gets_the_same_results(
    ran: Callable[[Runner, bool], Path],
    plain: Plain,
    longer: Plain,
    runner: Runner,
    in_prefect: bool,
) -> None:
    """On processes of which one dies: its cells are tried again."""
    warehouse = ran(runner, in_prefect)
    undisturbed = longer if runner is Runner.PROCESSES else plain
    asked = read_campaign(warehouse.with_name("plan.toml"))
    done = campaign_id(asked)
    rows = read_cells(warehouse, done)
    assert {row.cell: row.hash for row in rows} == undisturbed.hashes
    assert {row.status for row in rows} == {CellStatus.FINISHED}
    assert len({row.run for row in rows}) == len(rows) == 4
    runs = list(records_folder(warehouse).glob("run=*/round=all.parquet"))
    assert len(runs) == len(rows)  # the run of the dead worker was resumed

    before = tree(warehouse / "records")
    assert campaign(asked, Runner.THREADS, 1, None, warehouse) == done
    assert tree(warehouse / "records") == before
    assert read_cells(warehouse, done) == rows


def test_runs_of_processes_replay_and_fork_as_plain_ones(
    ran: Callable[[Runner, bool], Path], longer: Plain
) -> None:
    warehouse = ran(Runner.PROCESSES, False)
    done = campaign_id(read_campaign(warehouse.with_name("plan.toml")))
    rows = [row for row in read_cells(warehouse, done) if row.seed == 1]
    assert len(rows) == 2
    for row in rows:
        comparison = replay(row.run, warehouse)
        assert (comparison.differences, comparison.complete) == ([], True)
        change = Change(policy="srtf")
        theirs = whatif(row.run, warehouse, 1, change)
        ours = whatif(longer.runs[row.cell], longer.warehouse, 1, change)
        assert replace(theirs, run="") == replace(ours, run="")


def test_an_existing_dask_cluster_is_used_and_left_alone(
    client: SyncPrefectClient, tmp_path: Path, expected: dict[str, str]
) -> None:
    from distributed import LocalCluster

    asked = read_campaign(plan(tmp_path))
    with LocalCluster(
        n_workers=1,
        threads_per_worker=2,
        processes=False,
        protocol="tcp",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        campaign(asked, Runner.DASK, 0, cluster.scheduler_address, tmp_path / "w")
        assert len(cluster.workers) == 1
    assert hashes(tmp_path / "w", asked) == expected


def test_an_existing_ray_cluster_with_a_token_is_used_and_left_alone(
    client: SyncPrefectClient, server: Access, tmp_path: Path, expected: dict[str, str]
) -> None:
    path, port = plan(tmp_path, PLAN.replace("[1, 2]", "[2]")), free_port()
    env = os.environ | {
        "HOME": str(tmp_path),
        **server.client_env(),
        "PYTHONPATH": str(ROOT),
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": "of-this-test-and-no-other-0123456789",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    with ray_head(port, env, tmp_path / "ray.log") as head:
        program = [sys.executable, "-c", "from flows.cli.main import main; main()"]
        asked = ["campaign", "run", path, "--runner", "ray", "--address", f"127.0.0.1:{port}"]
        ran = subprocess.run(
            [*program, *asked, "--warehouse", tmp_path / "w", "--json"],
            env=env,
            capture_output=True,
            text=True,
            timeout=HANG_SECONDS,
        )
        assert (ran.returncode, ran.stderr) == (0, "")
        assert head.poll() is None
    found = hashes(tmp_path / "w", read_campaign(path))
    assert found == {cell: expected[cell] for cell in expected if cell.endswith("seed2")}
    assert len(found) == 2


@contextmanager
def ray_head(port: int, env: dict[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A Ray cluster of one node, once it is ready; nothing of it is left in the end."""
    ray = [Path(sys.executable).with_name("ray"), "start", "--head", "--block", "--num-cpus=1"]
    command = [*ray, f"--port={port}", "--node-ip-address=127.0.0.1", *RAY_ALONE]

    def start() -> subprocess.Popen[bytes]:
        with log.open("wb") as out:
            return subprocess.Popen(command, env=env, stdout=out, stderr=subprocess.STDOUT)

    def is_decided() -> bool:
        return "Ray runtime started" in log.read_text() or head.poll() is not None

    head = start()
    try:
        wait_for(is_decided)
        if RAY_TOO_LATE in log.read_text():
            head.wait(HANG_SECONDS)
            head = start()
            wait_for(is_decided)
        assert head.poll() is None, log.read_text()
        yield head
    finally:
        started = descendants(head.pid)
        head.terminate()
        head.wait(HANG_SECONDS)
    assert wait_for(lambda: running(started), lambda left: not left) == set()


def test_a_failed_cell_stops_no_other(
    here: Command, client: SyncPrefectClient, tmp_path: Path, expected: dict[str, str]
) -> None:
    path, warehouse = plan(tmp_path, BROKEN), tmp_path / "w"
    ran = here("campaign", "run", path, "--runner", "threads", "--warehouse", warehouse, "--json")
    assert ran.code == 1
    assert [row["policy"] for row in ran.rows] == ["shockwave"]
    (line,) = ran.err.splitlines()
    assert "2 of 4 cells failed: fifo/drawn/four/seed1 (" in line
    assert "no-such" in line
    rows = read_cells(warehouse, campaign_id(read_campaign(path)))
    assert [row.status for row in rows] == ["failed", "failed", "finished", "finished"]
    assert [row.hash for row in rows[2:]] == [
        expected[row.cell] for row in rows if row.policy == "shockwave"
    ]
    with pytest.raises(CellsFailed, match="2 of 4 cells failed"):
        campaign(read_campaign(path), Runner.THREADS, 1, None, warehouse)


def test_a_killed_campaign_redoes_no_finished_cell(
    client: SyncPrefectClient, server: Access, longer: Plain, tmp_path: Path
) -> None:
    path, warehouse = plan(tmp_path, LONGER), tmp_path / "w"
    asked = read_campaign(path)
    command = ("campaign", "run", path, "--workers", "1", "--warehouse", warehouse, "--json")
    api = server.client_env() | {"PYTHONPATH": str(ROOT)}
    program = subprocess.Popen(
        [sys.executable, "-c", "from flows.cli.main import main; main()", *map(str, command)],
        env=os.environ | api,
        stdout=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + HANG_SECONDS
    while not list(warehouse.glob("campaigns/cells/*.json")):
        assert program.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.005)
    left = descendants(program.pid)
    assert left  # its worker
    program.kill()
    program.wait()
    assert program.returncode == -signal.SIGKILL
    assert wait_for(lambda: running(left), lambda still: not still) == set()
    finished = {
        folder.name: tree(folder)
        for path in warehouse.glob("campaigns/cells/*.json")
        for folder in [place_of(warehouse, json.loads(path.read_text())["run"])]
    }
    assert 0 < len(finished) < 4

    campaign(asked, Runner.THREADS, 1, None, warehouse)
    for name, content in finished.items():
        assert tree(records_folder(warehouse) / name) == content
    rows = read_cells(warehouse, campaign_id(asked))
    assert {row.status for row in rows} == {CellStatus.FINISHED}
    assert len(list(records_folder(warehouse).glob("run=*/round=all.parquet"))) == len(rows) == 4
    assert {row.cell: row.hash for row in rows} == longer.hashes
