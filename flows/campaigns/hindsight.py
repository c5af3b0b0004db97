"""What policies would have done with the jobs of a cluster's log."""

import hashlib
import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import BrokenExecutor, Future, wait
from ctypes import Array, c_longlong
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Protocol

from flows.campaigns import Runner
from flows.campaigns.cells import finish_start, make_cell_key
from flows.campaigns.compare import check_policies, select_parameters
from flows.campaigns.runners import SPAWN, open_executor, stop_processes
from flows.runs.code_version import hash_code
from flows.runs.pools import Machines
from flows.runs.settings import ClusterSize, SimulationSettings, make_settings, pools_of
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError, Interrupted, ShockwaveError
from solver.inventory import Pool
from tasks.record import Parameter, Start
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.hindsight.inference import infer_pools
from warehouse.hindsight.jobs import LoggedJobs, select_jobs
from warehouse.store.durable import check_writable
from warehouse.wording import counted
from warehouse.workloads.logs.anonymous import anonymize, hide_text
from warehouse.workloads.logs.log import ClusterLog, find_most_held

POLL_SECONDS = 0.5
"""Interval between progress reports. An engineering choice."""

MOST_ROUNDS = 5_040
"""Rounds between the first and the last arrival, a week of the usual ones. Longer logs get longer
rounds, so that a month takes minutes. An engineering bound."""

if TYPE_CHECKING:
    Counts = Array[c_longlong]


class JobsEnded(Protocol):
    """Receives the numbers of ended and of all jobs, over all policies."""

    def __call__(self, done: int, total: int, *, left: float) -> None:
        """Report progress; `left` are the seconds until the end, 0 if unknown."""


NOT_BEGUN = -1
"""Number of ended jobs of a run before the end of its first round here."""


@dataclass(frozen=True)
class HindsightPlan:
    """A checked comparison that has not run yet.

    Attributes:
        jobs: The jobs of the log.
        starts: The start of each policy's run.
        cluster: The cluster, and how it is known.
    """

    jobs: LoggedJobs
    starts: tuple[Start, ...]
    cluster: str

    @property
    def digest(self) -> str:
        """Hash of what is compared: the jobs, the cluster, the policies and their settings."""
        digests = "".join(start.digest for start in self.starts)
        return hashlib.sha256(digests.encode()).hexdigest()[:8]


def plan_hindsight(
    source: Source,
    size: ClusterSize | None,
    restart_seconds: float,
    policies: Sequence[str],
    warehouse: Path,
    parameters: Sequence[Parameter] = (),
    *,
    anonymous: bool = False,
    round_seconds: float | None = None,
) -> HindsightPlan:
    """Read a log, and check the run of each policy before any starts.

    Args:
        source: The log.
        size: The cluster; None for the smallest that could hold the log's jobs.
        restart_seconds: Time that a restart costs a job, in seconds.
        policies: Names of the policies.
        warehouse: Destination of the runs.
        parameters: Parameters, each for the policies that have it.
        anonymous: Whether numbers replace users, accounts and names of jobs.
        round_seconds: Length of a round, in seconds; by default see `choose_round`.

    Raises:
        ShockwaveError: A file, a policy or a setting is invalid, the log says of no job when it
            started, or the cluster is smaller than what its jobs held.
    """
    settings = SimulationSettings(restart_seconds=restart_seconds)
    check_policies(policies, make_settings(policies[0], ClusterSize(1), settings), parameters)
    log = _read_log(source, anonymous)
    if round_seconds is None:
        round_seconds = choose_round(log)
    settings = replace(settings, round_seconds=round_seconds)
    machines, cluster = _choose_machines(log, size)
    types = tuple(dict.fromkeys(pool.gpu_type for pool in machines.pools if pool.gpu_type))
    workload = source.make_jobs(log, types)
    cluster = " ".join(filter(None, (cluster, workload.tell_changes())))
    starts = []
    for name in policies:
        taken = select_parameters(name, parameters)
        start = make_start(workload, make_settings(name, machines, settings, parameters=taken))
        prepare(start)
        starts.append(start)
    check_writable(warehouse)
    jobs = LoggedJobs(log, starts[0].workload, starts[0].header.settings)
    return HindsightPlan(jobs, tuple(starts), cluster)


def choose_round(log: ClusterLog) -> float:
    """Return the length of a round in seconds: the usual one, or whole minutes for a long log."""
    arrivals = [job.arrival_seconds for job in log.jobs]
    minutes = math.ceil((max(arrivals) - min(arrivals)) / MOST_ROUNDS / 60)
    return max(SimulationSettings.round_seconds, 60.0 * minutes)


def _read_log(source: Source, anonymous: bool) -> ClusterLog:
    if not anonymous:
        return select_jobs(source.read_log())
    try:
        log = source.read_log()
    except InputError as error:
        if error.place in {field.name for field in fields(Source)}:
            raise  # it quotes an option
        raise hide_text(error) from None
    return select_jobs(anonymize(log))


def _choose_machines(log: ClusterLog, size: ClusterSize | None) -> tuple[Machines, str]:
    """Return the cluster, and a sentence about how it is known."""
    if size is None:
        pools = infer_pools(log.jobs)
        said = (
            f"{_describe(pools)}: the fewest whole nodes on which the jobs of the log could run "
            "as they did. With more GPUs policies would have done better, with fewer worse."
        )
        return Machines(pools), said
    pools, most = pools_of(size), find_most_held(log.jobs)
    types = () if size.pools else sorted({job.gpu_type for job in log.jobs if job.gpu_type})
    if (gpus := sum(pool.gpus for pool in pools)) < most:
        raise InputError(
            "pools" if size.pools else "gpus",
            f"{gpus:,} GPUs are fewer than the {most:,g} that the log's jobs held at once",
            "give at least as many, or leave it out",
        )
    given = f"{_describe(pools)}, as given."
    if types:
        given += f" They are all alike: the log's GPU types ({', '.join(types)}) need --pools."
    return Machines(pools), given


def _describe(pools: Sequence[Pool]) -> str:
    return " and ".join(
        f"{pool.gpus:,} {pool.gpu_type} GPU{'s' * (pool.gpus > 1)}".replace("  ", " ")
        + f" on {counted(pool.nodes, 'node')}" * (pool.gpus_per_node > 1)
        for pool in pools
    )


def run_policies(
    starts: Sequence[Start],
    warehouse: Path,
    watch: JobsEnded = lambda done, total, *, left: None,
) -> list[str]:
    """Run each start to its end, as many at a time as there are cores; return the runs' ids.

    A start that has already run is not run again, and an interrupted one is resumed.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: A run failed, or a process was killed. The other runs stop, too.
    """
    build(warehouse)
    keys = [make_cell_key(start, hash_code(start.header.settings)) for start in starts]
    jobs = [len(start.workload.specs) for start in starts]
    total, spent = sum(jobs), [0.0] * len(starts)
    first: dict[int, float] = {}
    # Without a lock, which a killed worker could hold.
    counts = SPAWN.RawArray("q", [NOT_BEGUN] * len(starts))
    workers = min(os.cpu_count() or 1, len(starts))
    with open_executor(Runner.PROCESSES, workers, partial(_share_counts, counts)) as pool:
        futures = [
            pool.submit(_run_start, number, start, key, warehouse)
            for number, (start, key) in enumerate(zip(starts, keys, strict=True))
        ]
        try:
            for seconds in _await(futures):
                ended = [*counts]
                shares = [max(n, 0) / max(all_, 1) for n, all_ in zip(ended, jobs, strict=True)]
                for number, count in enumerate(ended):
                    if number in first:
                        spent[number] += seconds * (count < jobs[number])
                    elif count > NOT_BEGUN:
                        first[number] = shares[number]  # of a resumed run above 0
                since = [share - first.get(n, share) for n, share in enumerate(shares)]
                left = estimate_left(spent, since, shares, workers)
                watch(sum(max(count, 0) for count in ended), total, left=left)
        except BaseException as error:
            stop_processes(Runner.PROCESSES)  # the next command continues their runs
            remedy = "run it again: it continues"
            if isinstance(error, KeyboardInterrupt):
                done = sum(max(count, 0) for count in counts)
                problem = f"interrupted with {done:,} of {total:,} jobs done"
                raise Interrupted("hindsight", problem, remedy) from None
            if isinstance(error, BrokenExecutor):
                problem = "a process of it was killed, perhaps for want of memory"
                raise ShockwaveError("hindsight", problem, remedy) from None
            raise
    return [future.result() for future in futures]


def estimate_left(
    spent: Sequence[float], done: Sequence[float], shares: Sequence[float], workers: int
) -> float:
    """Estimate the seconds until some runs end, some at a time; 0 without any pace.

    Policies differ in speed by more than tenfold, so each run has a pace of its own; one without
    is taken to need as long as the others on average.

    Args:
        spent: Seconds for which each run was watched.
        done: Share of each run that was done in them; less than in all if it was resumed.
        shares: Share of each run that is done.
        workers: Runs at a time.
    """
    whole = [s / share if share > 0 else 0.0 for s, share in zip(spent, done, strict=True)]
    paced = [seconds for seconds in whole if seconds > 0]
    if not paced:
        return 0.0
    usual = sum(paced) / len(paced)
    left = [(w or usual) * (1.0 - share) for w, share in zip(whole, shares, strict=True)]
    return max(*left, sum(left) / workers)


def _await(futures: Sequence[Future[str]]) -> Iterator[float]:
    """Wait for all futures; yield the seconds of each wait, and raise the first error."""
    waiting, before = {*futures}, monotonic()
    while waiting:
        done, waiting = wait(waiting, POLL_SECONDS)
        for future in done:
            future.result()
        now = monotonic()
        yield now - before
        before = now


_counts: list["Counts"] = []
"""Ended jobs of each run, in a worker process."""


def _share_counts(counts: "Counts") -> None:
    _counts[:] = [counts]


def _run_start(number: int, start: Start, key: str, warehouse: Path) -> str:
    # Its count begins after a round: a resumed run would jump from 0 to where it was.
    def progress(run: Run) -> None:
        _counts[0][number] = run.state.arrived - len(run.state.beliefs)

    done = finish_start(start, key, warehouse, progress=progress)
    _counts[0][number] = len(start.workload.specs)
    return done.run
