"""Fork a run's history at a round, change something, and run it forward."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from flows.explain.forks import take_over
from flows.runs.code_version import describe_changed_plugins, list_packages
from flows.runs.job_file import read_job
from flows.runs.pools import format_pools
from flows.runs.resuming import repeat_round
from flows.runs.simulation import Watch, finish, prepare, unwatched
from flows.runs.start import check_recorded, make_header
from predictor.errors import InputError
from solver.inventory import Pool
from tasks.commands import CommandKind
from tasks.record import (
    ON_MACHINES,
    Fork,
    Parameter,
    RoundRecord,
    Settings,
    Start,
    Timings,
    hash_record,
)
from warehouse.analytics.catalog import build
from warehouse.analytics.questions import Analytics
from warehouse.store.durable import check_writable, writing
from warehouse.store.reader import Reader
from warehouse.store.writer import DELAY_SECONDS, Writer

FIGURES = (
    *("makespan_s", "mean_jct_s", "jct_p50_s", "jct_p95_s", "jct_p99_s"),
    *("worst_rho", "unfair_fraction", "rho_p95"),
    *("utilization", "nash_welfare", "envy_violations", "preemptions", "rounds", "cost"),
)
"""Compared columns of `run_summary`; `cost` only if GPUs have prices."""


@dataclass(frozen=True)
class Change:
    """What a fork changes from its first round on.

    Attributes:
        parameters: Parameters of the policy. If the policy stays, they override the recorded
            parameters; recorded parameters without effect on the new cluster are dropped.
        gpus: Another number of GPUs. Like `pools`, it is refused if nodes were added or removed
            during the run.
        pools: Another cluster. GPUs of both clusters keep their numbers. A pool with price 0 takes
            the run's price.
        without: Ids of jobs to withdraw, or to leave out if they have not arrived.
        jobs: Files of added jobs, which arrive at the fork's first round.
    """

    policy: str | None = None
    parameters: tuple[Parameter, ...] = ()
    gpus: int | None = None
    pools: tuple[Pool, ...] = ()
    without: tuple[int, ...] = ()
    jobs: tuple[Path, ...] = ()

    def settings(self, recorded: Settings) -> Settings:
        """Return the fork's settings; another policy has none of the recorded parameters.

        Raises:
            InputError: The cluster cannot be changed like this.
        """
        policy = recorded.policy if self.policy is None else self.policy
        asked = replace(recorded, policy=policy, pools=self._cluster(recorded.pools))
        kept = recorded.parameters if policy == recorded.policy else ()
        values = {held.name: held for held in kept}
        values |= {parameter.name: parameter for parameter in self.parameters}
        return replace(asked, parameters=tuple(values[name] for name in sorted(values)))

    def _cluster(self, recorded: tuple[Pool, ...]) -> tuple[Pool, ...]:
        if self.gpus is not None and (self.pools or len(recorded) > 1):
            raise InputError("gpus", "sets the size of a single pool", "give pools instead")
        if self.gpus is not None:
            nodes_of = recorded[0].gpus_per_node
            if self.gpus % nodes_of:
                problem = f"{self.gpus} GPUs do not fill the run's nodes of {nodes_of} GPUs"
                remedy = f"give a multiple of {nodes_of}, enough for each job"
                raise InputError("gpus", problem, remedy)
            return (replace(recorded[0], gpus=self.gpus),)
        for before, now in zip(recorded, self.pools, strict=False):
            last = before is recorded[-1] and now is self.pools[-1]
            alike = (before.gpu_type, before.gpus_per_node) == (now.gpu_type, now.gpus_per_node)
            if not alike or (before.gpus != now.gpus and not last):
                problem = "would renumber the GPUs of later pools"
                if before.gpu_type != now.gpu_type:
                    problem = "has another GPU type"
                elif not alike:
                    problem = "has another number of GPUs per node"
                own, asked, all_own = map(format_pools, ([before], [now], recorded))
                raise InputError(
                    "pools",
                    f"{asked} in place of the run's {own} {problem}",
                    f"the run has {all_own}: resize or drop the last pool, or append pools",
                )
        pools = []
        for number, now in enumerate(self.pools):
            # prefer the pool at the same place, then any pool of the type
            price = now.price or _price(now.gpu_type, (*recorded[number:], *recorded))
            pools.append(replace(now, price=price))
        return tuple(pools) or recorded


def _price(gpu_type: str, pools: Iterable[Pool]) -> float:
    """Return the price per GPU-hour of the first pool of a type; 0 if there is none."""
    return next((pool.price for pool in pools if pool.gpu_type == gpu_type), 0.0)


@dataclass(frozen=True)
class Outcome:
    """Comparison of a recorded run with its fork.

    Attributes:
        run: The fork's id.
        figures: Name, recorded value and forked value of each figure.
        jobs: For each job: id, recorded JCT, forked JCT, recorded ρ, forked ρ.
        remarks: Plugins that changed since the run was recorded, in words.
        rounds_so_far: Recorded rounds of an unfinished run; its figures come from a fork without a
            change. None if the run is finished.
    """

    run: str
    figures: tuple[tuple[str, float | None, float | None], ...]
    jobs: tuple[tuple[int, float | None, float | None, float | None, float | None], ...]
    remarks: tuple[str, ...] = ()
    rounds_so_far: int | None = None


def whatif(
    name: str,
    warehouse: Path,
    number: int,
    change: Change,
    keep: Path | None = None,
    watch: Watch = unwatched,
) -> Outcome:
    """Fork a run and compare the fork with the recorded run.

    An unfinished run has no final figures, so a second fork without a change stands in for it.

    Args:
        name: The run.
        warehouse: The warehouse that holds it.
        number: The first round to decide anew.
        change: The change from that round on.
        keep: A new folder for a warehouse with the fork; by default the fork is deleted.
        watch: Takes the start of a fork; returns the callback for its rounds.

    Raises:
        ShockwaveError: There is no such run, round or job, its records are damaged, or the
            change is invalid.
    """
    analytics = Analytics(warehouse)
    if keep is not None and keep.exists():
        raise InputError("keep", f"{keep} exists", "name a new folder")
    if keep is not None:
        check_writable(keep)
    with TemporaryDirectory(prefix="shockwave-whatif-") as scratch:
        there, other = Path(scratch) / "fork", Path(scratch) / "recorded"
        forked = fork(name, warehouse, number, change, there, watch)
        results = _results(Analytics(there), forked)
        recorded, remarks, so_far = _results(analytics, name), list[str](), None
        reader = Reader(warehouse)
        settings, ended = reader.header(name).settings, recorded[0]["complete"]
        if change.policy in (None, settings.policy) or not ended:
            remarks = describe_changed_plugins(settings, reader.packages(name))
        if not ended:
            so_far = recorded[0]["rounds"]
            recorded = _results(
                Analytics(other), fork(name, warehouse, number, Change(), other, watch)
            )
        if keep is not None:
            with writing(keep):
                shutil.move(there, keep)
            build(keep)
    (figures, jobs), (forked_figures, forked_jobs) = recorded, results
    return Outcome(
        run=forked,
        figures=compare_figures(figures, forked_figures),
        jobs=tuple(
            (job, jct, forked_jct, rho, forked_rho)
            for job in sorted(jobs.keys() | forked_jobs.keys())
            for jct, rho in [jobs.get(job, (None, None))]
            for forked_jct, forked_rho in [forked_jobs.get(job, (None, None))]
        ),
        remarks=tuple(remarks),
        rounds_so_far=so_far,
    )


def fork(
    name: str,
    warehouse: Path,
    number: int,
    change: Change,
    into: Path,
    watch: Watch = unwatched,
) -> str:
    """Fork a run at a round and run the fork to its end; return the fork's id.

    Earlier rounds are executed as recorded. Later rounds are decided anew, from the beliefs that
    follow from the records. The fork is written to the warehouse `into`. For other arguments and
    errors, see `whatif`.
    """
    reader = Reader(warehouse)
    recorded, rounds = reader.start(name), reader.records(name)
    if not 0 <= number < len(rounds):
        raise InputError(
            "round", f"run {name!r} has no round {number}", f"give one below {len(rounds)}"
        )
    if change.policy in (None, recorded.header.settings.policy):
        check_recorded(name, recorded.header.settings)
    start = _forked(name, recorded, [record for record, _ in rounds], number, change)
    prepared = prepare(start)
    runtime = start.header.settings.runtime
    if runtime in ON_MACHINES or prepared.place.live:
        where = "in containers" if runtime in ON_MACHINES else f"under {runtime}"
        raise InputError(
            f"run {name!r}",
            f"ran {where}; its rounds cannot be executed again",
            "simulate its trace with --runtime faithful and fork the simulation",
        )
    with (
        Writer(
            into, start, packages=list_packages(start.header.settings), delay_seconds=DELAY_SECONDS
        ) as writer,
        prepared.open_run(writer, writer.run) as run,
    ):
        for record, _ in rounds[:number]:
            linked = replace(record, previous_hash=run.state.last_hash)
            digest = hash_record(linked)
            repeat_round(run, linked, digest)
            writer.append(linked, digest, Timings(0.0, 0.0, 0.0, 0.0))
        run.state = take_over(run.state, start.header.settings)
        for job_id in change.without:
            if job_id in run.state.beliefs:
                run.runtime.withdraw(job_id)
        return finish(run, into, writer, progress=watch(start))


def _forked(
    name: str, recorded: Start, rounds: Sequence[RoundRecord], number: int, change: Change
) -> Start:
    """Make the start of the fork: its settings, and its jobs.

    Arrived jobs keep their order, so that the repeated rounds match their records. Jobs yet to
    arrive may be left out or added.
    """
    known, changes = recorded.workload, {CommandKind.ADD, CommandKind.REMOVE}
    commands = (command for record in rounds for command in record.commands)
    if (change.gpus is not None or change.pools) and any(c.kind in changes for c in commands):
        raise InputError(
            "gpus" if change.gpus is not None else "pools",
            f"nodes were added to or removed from run {name!r}",
            "leave it out: the fork then has the run's nodes in each round",
        )
    arrived = sum(len(record.arrivals) for record in rounds[:number])
    ended = {job_id for record in rounds[: number + 1] for job_id in record.ended}
    jobs = {
        spec.job_id: (spec, truth) for spec, truth in zip(known.specs, known.truths, strict=True)
    }
    for job_id in change.without:
        if job_id not in jobs:
            raise InputError("without", f"there is no job {job_id}", "give a job of the run")
        if job_id in ended:
            raise InputError(
                "without", f"job {job_id} has already ended in that round", "fork earlier"
            )
    coming = [spec.job_id for spec in known.specs[arrived:]]
    for job_id in set(change.without) & set(coming):
        del jobs[job_id]
    free = max((spec.job_id for spec in known.specs), default=0) + 1
    added = [
        read_job(path, job_id, rounds[number].clock_seconds, known, change.without)
        for job_id, path in enumerate(change.jobs, start=free)
    ]
    first = [jobs[spec.job_id] for spec in known.specs[:arrived]]
    rest = [jobs[job_id] for job_id in coming if job_id in jobs] + added
    rest.sort(key=lambda job: (job[0].arrival_seconds, job[0].job_id))
    specs, truths = zip(*first, *rest, strict=True) if first or rest else ((), ())
    names = dict(zip((spec.job_id for spec in known.specs), known.submitters, strict=False))
    submitters = tuple(names.get(spec.job_id, "") for spec in specs) if names else ()
    workload = replace(known, specs=specs, truths=truths, submitters=submitters)
    settings = recorded.header.settings
    decided = next((fork for fork in settings.forked if number <= fork.round), settings)
    latest = Fork(
        run=name,
        hash=rounds[number].previous_hash,
        round=number,
        pools=decided.pools,  # of the rounds that the fork repeats
        policy=decided.policy,
        parameters=decided.parameters,
    )
    earlier = tuple(fork for fork in settings.forked if fork.round < number)
    service = recorded.header.service
    asked = replace(change.settings(settings), forked=(*earlier, latest))
    header = replace(
        make_header(workload, asked, service=service, ended=ended | {*change.without}),
        profile=recorded.header.profile,
        history=recorded.header.history,
    )
    if number and header.adapts != recorded.header.adapts:
        problem = "jobs choose their batch sizes under one of the two policies only"
        raise InputError("policy", problem, "fork at round 0, or compare whole runs")
    return Start(header, workload, hash_record(header))


def compare_figures(
    one: Mapping[str, Any], other: Mapping[str, Any]
) -> tuple[tuple[str, float | None, float | None], ...]:
    """Return the compared figures of two runs, by name."""
    return tuple(
        (name, one[name], other[name])
        for name in FIGURES
        if name != "cost" or one[name] or other[name]
    )


Results = tuple[dict[str, Any], dict[int, tuple[float | None, float | None]]]


def _results(analytics: Analytics, run: str) -> Results:
    """Return the figures of a run, and each job's JCT and ρ."""
    (columns, (row,)), (_, rows) = analytics.queries(
        (
            "SELECT * FROM run_summary",
            "SELECT job_id, jct_seconds, rho FROM job_outcomes",
        ),
        [run],
    )
    return dict(zip(columns, row, strict=True)), {job: (jct, rho) for job, jct, rho in rows}
