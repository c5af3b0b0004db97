"""A run through Prefect that is killed again and again, beside an undisturbed one.

    python -m harness.endurance.kills [--kills 30] [--restarts 10] [--seed 0]

Processes that drive a run through Prefect are killed with signal 9 at points drawn over the run's
life; at others the server is killed and started again. After each, another process resumes the run.
Then no flow run of a dead process may be unfinished a minute after its start, and at the end the
records must be those of an undisturbed run without Prefect, hash for hash. Exits with 1 otherwise.
Processes are forked, so that a start costs no imports.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from contextlib import ExitStack, suppress
from multiprocessing import get_context
from pathlib import Path
from random import Random

from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.filters import FlowRunFilter, FlowRunFilterTags
from prefect.client.schemas.objects import FlowRun
from prefect.settings import PREFECT_HOME, temporary_settings

from flows.cli.options import DriverName
from flows.cli.simulate import open_driver
from flows.prefect_server.access import read_access
from flows.prefect_server.crashes import LABEL, identify_process
from flows.prefect_server.own_server import apply_settings, run_plain_server
from flows.prefect_server.prefect_driver import embedded_prefect
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.recorded import count_rounds
from harness.up import find_server, free_port
from tasks.record import Settings, make_pool
from warehouse.store.folder import run_folders
from warehouse.store.reader import Reader

START = make_start(
    Source(jobs=12, seed=4).open(), Settings("shockwave", make_pool(4), round_seconds=600.0)
)

MOST_SECONDS = 60.0
"""Longest time from the start of a command until no flow run of a dead process is unfinished."""

PART_OF_ROUND = 1.0
"""Most seconds between the record of a round and the signal: some of a round at least."""

MOST_STARTS = 1_000
"""Bound on starts of the driver."""

FORKING = get_context("fork")


class KilledRun:
    """The disturbed run: its server and process, and what was seen of its flow runs."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse, self._port, self._server = warehouse, free_port(), ExitStack()
        self.slowest, self.starts = 0.0, 0
        self._access = read_access(f"http://127.0.0.1:{self._port}")
        self._start_server()
        self.start()

    @property
    def run(self) -> str:
        """The run's id; empty before it began."""
        return "".join(folder.name.removeprefix("run=") for folder in run_folders(self.warehouse))

    def start(self) -> None:
        """Start a process that begins the run or resumes it."""
        self._began, self.starts = time.monotonic(), self.starts + 1
        self._process = FORKING.Process(target=self._drive)
        self._process.start()

    def _drive(self) -> None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115  a server that is away is reported there
        with (
            apply_settings(self._access.client_settings()),
            open_driver(DriverName.PREFECT) as driver,
        ):
            if self.run:
                resume(self.run, self.warehouse, driver=driver)
            else:
                simulate(START, self.warehouse, driver=driver)

    def reach(self, rounds: int) -> bool:
        """Wait until so many rounds are recorded; False if the run ended before."""
        while count_rounds(self.warehouse) < rounds:
            time.sleep(0.02)
            if not self._process.is_alive() and not self.end():
                return False
        return True

    def end(self) -> bool:
        """Wait for the end of the process; resume and return True if it had failed."""
        self._process.join()
        if not self._process.exitcode:
            return False
        assert self.starts < MOST_STARTS, "the driver fails again and again"
        self.start()
        self.wait_until_settled()
        return True

    def kill(self) -> None:
        """Kill the process and start another."""
        self._process.kill()
        self._process.join()
        self.start()

    def restart_server(self) -> None:
        """Kill the server and start another."""
        os.kill(find_server(os.getpid(), self._port), signal.SIGKILL)
        self._server.close()
        self._start_server()
        self._began = time.monotonic()

    def _start_server(self) -> None:
        self._server.enter_context(run_plain_server(port=self._port))

    def flow_runs(self) -> list[FlowRun]:
        """The flow runs of its rounds."""
        found = list[FlowRun]()
        tags = FlowRunFilter(tags=FlowRunFilterTags(all_=[self.run]))
        with apply_settings(self._access.client_settings()), get_client(sync_client=True) as client:
            assert isinstance(client, SyncPrefectClient)
            while page := client.read_flow_runs(flow_run_filter=tags, limit=200, offset=len(found)):
                found += page
        return found

    def wait_until_settled(self) -> None:
        """Wait until no flow run of a dead process is unfinished; note how long it took."""

        def stale() -> bool:
            mine = ""
            with suppress(OSError, TypeError):  # it has ended
                mine = identify_process(self._process.pid)
            return any(
                each.state and not each.state.is_final() and each.labels.get(LABEL) != mine
                for each in self.flow_runs()
            )

        while stale() and self._process.is_alive():
            time.sleep(0.1)
        self.slowest = max(self.slowest, time.monotonic() - self._began)

    def close(self) -> None:
        """Stop the server."""
        self._server.close()


def main() -> int:
    options = parse()
    rng = Random(options.seed)
    with tempfile.TemporaryDirectory() as name, embedded_prefect():
        folder = Path(name)
        wanted = Reader(folder / "plain").records(simulate(START, folder / "plain"))
        drawn = rng.sample(range(1, len(wanted)), options.kills + options.restarts)
        points = sorted((rounds, index < options.kills) for index, rounds in enumerate(drawn))
        with temporary_settings({PREFECT_HOME: folder / "home"}):
            trial = KilledRun(folder / "disturbed")
            kills, restarts = disturb(trial, points, rng)
            flow_runs = trial.flow_runs()
            trial.close()
        records = Reader(trial.warehouse).records(trial.run)
    done = [run.parameters["number"] for run in flow_runs if run.state_name == "Completed"]
    asked = options.kills + options.restarts
    faults = {
        f"{asked} kills were asked for": kills + restarts < asked,
        "records differ from those of the undisturbed run": records != wanted,
        "a round has two completed flow runs": len({*done}) != len(done),
        "flow runs are unfinished": any(
            not (run.state and run.state.is_final()) for run in flow_runs
        ),
        f"a flow run was unfinished after {MOST_SECONDS:.0f} s": trial.slowest > MOST_SECONDS,
    }
    print(
        f"{kills} kills of the driver and {restarts} of the server in {len(wanted)} rounds, "
        f"{trial.starts} starts; {len(flow_runs)} flow runs, {len(flow_runs) - len(done)} of them "
        f"not completed; settled {trial.slowest:.1f} s after a start at the latest"
    )
    for fault, is_so in faults.items():
        if is_so:
            print(f"FAULT: {fault}")
    return int(any(faults.values()))


def disturb(trial: KilledRun, points: list[tuple[int, bool]], rng: Random) -> tuple[int, int]:
    """Run to the end, with a kill at each point; return the kills of driver and server.

    A point is a number of recorded rounds, and whether the driver is killed, or the server.
    """
    kills = restarts = 0
    for rounds, is_driver in points:
        if not trial.reach(rounds):
            break
        time.sleep(rng.uniform(0.0, PART_OF_ROUND))
        print(
            f"{rounds} rounds, {'driver' if is_driver else 'server'}", file=sys.stderr, flush=True
        )
        if is_driver:
            trial.kill()
            kills += 1
        else:
            trial.restart_server()
            restarts += 1
        trial.wait_until_settled()
    while trial.end():
        pass
    return kills, restarts


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--restarts", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
