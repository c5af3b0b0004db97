"""Runs on the virtual cluster: start, resume, replay."""

import gc
import math
import platform
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from shlex import quote
from threading import Lock

from containers.runtime import EventKind, Launch
from containers.virtual.faithful import FaithfulCluster
from containers.virtual.virtual_cluster import VirtualCluster
from predictor.basis import Basis
from predictor.errors import InputError, Interrupted, WarehouseError
from predictor.profile import Profile
from predictor.published_predictor import ProfiledRegime
from solver.cluster import Cluster
from solver.plan import Policy
from solver.policies import POLICIES, make_policy
from tasks.record import (
    VERSION,
    Package,
    Parameter,
    PastJob,
    RoundRecord,
    RunHeader,
    RuntimeKind,
    Settings,
    Throughput,
    record_hash,
)
from tasks.replay import Comparison, Recording
from tasks.round import Round, Run, Sink, collect, run_round
from tasks.state import RunState, advance
from warehouse.analytics.catalog import build
from warehouse.store.reader import Reader
from warehouse.store.writer import Writer
from warehouse.workloads.workload import Workload

LONGEST_WINDOW = 1_000
"""Rounds; a bid is a table over them, and each round keeps all bids."""

Driver = Callable[[Run], Round]
"""Calls the steps of one round."""

Progress = Callable[[Run], None]
"""Told after every round."""


def make_header(
    workload: Workload, settings: Settings, history: tuple[PastJob, ...] = ()
) -> RunHeader:
    """What a run of a workload starts from.

    Args:
        workload: Its jobs.
        settings: What is asked.
        history: Finished jobs of earlier runs; those that the profile does not know are
            left out.

    Raises:
        InputError: A setting is wrong, or a job does not fit the cluster.
    """
    _policy(settings)
    Cluster(settings.gpus, settings.gpus_per_node)
    workload.check_fits(settings.gpus)
    for option, value, least in (
        ("--round-seconds", settings.round_seconds, 1.0),
        ("--restart-seconds", settings.restart_seconds, 0.0),
        ("--window", settings.window, 1),
    ):
        if not least <= value < float("inf"):
            raise InputError(option, f"{value} is out of range", f"give at least {least:g}")
    if settings.window > LONGEST_WINDOW:
        raise InputError(
            "--window", f"{settings.window} is out of range", f"give at most {LONGEST_WINDOW}"
        )
    if settings.restart_seconds >= settings.round_seconds:
        raise InputError(
            "--restart-seconds",
            f"{settings.restart_seconds:g} leaves nothing of a round",
            f"give less than the round's {settings.round_seconds:g}",
        )
    models = {spec.model for spec in workload.specs}
    return RunHeader(
        version=VERSION,
        settings=settings,
        source=workload.source,
        specs=workload.specs,
        truths=workload.truths,
        profile=tuple(
            Throughput(*key, rate)
            for key, rate in sorted(workload.profile.steps_per_second.items())
            if key[0] in models
        ),
        history=tuple(
            job
            for job in history
            if job.spec.model in models
            and all(
                workload.profile.can_run(job.spec.model, size, job.spec.scale_factor)
                for size in {job.spec.batch_size, *(regime.batch_size for regime in job.observed)}
            )
        ),
    )


def past_jobs(warehouse: Path, runs: Iterable[str]) -> tuple[PastJob, ...]:
    """The finished jobs of runs, in the order of their ends.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader, jobs, names = Reader(warehouse), [], list(runs)
    if len(set(names)) < len(names):
        raise InputError("--history", "a run is there twice", "give each once")
    for name in names:
        header = reader.header(name)
        state = RunState.initial(header)
        for record, _ in reader.records(name):
            state = advance(header, state, record)
        jobs += [PastJob(belief.spec, belief.observed, belief.paces) for belief in state.ended]
    return tuple(jobs)


def parse_parameters(texts: Iterable[str]) -> tuple[Parameter, ...]:
    """Parameters of a policy from the command line.

    Args:
        texts: Of the form NAME=VALUE.

    Raises:
        InputError: One is not of that form, or a name comes twice.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise InputError("--set", f"{text!r} is not NAME=VALUE", "give a finite number")
        if name in found:
            raise InputError("--set", f"{name} is given twice", "give it once")
        found[name] = number
    return tuple(Parameter(name, found[name]) for name in sorted(found))


def simulate(
    header: RunHeader,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a workload on the virtual cluster, to its end if nothing else is said.

    Args:
        header: What to run.
        warehouse: Where its records go.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left to be resumed.

    Returns:
        The run's id.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    prepared = prepare(header)
    build(warehouse)
    with Writer(warehouse, header, packages=packages()) as writer:
        run = replace(prepared, name=writer.run, sink=writer)
        return finish(run, warehouse, writer, driver, progress, rounds)


def resume(
    name: str,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Go on from the last recorded round of an unfinished run.

    The virtual cluster is brought to where it was by carrying out the recorded
    decisions again; the state is the fold over the records.

    Args:
        name: The run.
        warehouse: Where it is.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left again; to its end by default.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader = Reader(warehouse)
    header = reader.header(name)
    if header.settings.forked:
        raise InputError(f"run {name!r}", "is a fork", "fork it anew with shockwave whatif")
    if header.settings.runtime is RuntimeKind.DOCKER:
        raise InputError(f"run {name!r}", "runs in containers", "give its --cluster file")
    build(warehouse)
    with Writer(warehouse, header, run=name) as writer:
        run = _run(name, header, writer)
        for record, digest in reader.records(name):
            carry_out(run, record, digest)
        return finish(run, warehouse, writer, driver, progress, rounds)


def replay(name: str, warehouse: Path, *, only: int | None = None) -> Comparison:
    """Predict and solve recorded rounds again, from what was recorded.

    Args:
        name: The run.
        warehouse: Where it is.
        only: One round, or None for all.

    Returns:
        What came out otherwise, if anything.

    Raises:
        ShockwaveError: There is no such run or round, or its records are damaged.
    """
    reader = Reader(warehouse)
    header, recorded = reader.header(name), reader.records(name)
    if only is not None and not 0 <= only < len(recorded):
        raise InputError("--round", f"run {name!r} has no round {only}", f"it has {len(recorded)}")
    check_own(name, header, only)
    comparison = Comparison(recorded)
    run = _run(name, header, comparison)
    for record, _ in recorded:
        state = run.state
        if only in (None, record.round) and record.round >= header.settings.first_own_round:
            run.state = taken_over(state, header.settings)
            run.runtime = Recording([record])
            run_round(run)
        if record.round == only:
            break
        run.state = advance(header, state, record)
    comparison.complete = run.finished
    return comparison


def check_own(name: str, header: RunHeader, number: int | None) -> None:
    """Refuse a round of a fork that another run decided.

    Raises:
        InputError: It is one.
    """
    settings = header.settings
    if number is not None and number < settings.first_own_round:
        raise InputError(
            "--round",
            f"run {name!r} is a fork, and took round {number} over",
            f"ask run {settings.forked[-1].run!r} of it, or from {settings.first_own_round} on",
        )


def taken_over(state: RunState, settings: Settings) -> RunState:
    """The state that a fork begins with; at any other round, the state as it is.

    What another policy noted means nothing to this one, and forecasts for one that does not
    look ahead do not reach far enough for one that does.
    """
    if not settings.forked or state.round != settings.first_own_round:
        return state
    fork = settings.forked[-1]
    if (settings.policy, settings.parameters) != (fork.policy, fork.parameters):
        state = replace(state, memory="")
    if POLICIES[settings.policy].looks_ahead is not POLICIES[fork.policy].looks_ahead:
        state = replace(state, forecasts={})
    return state


def check_chain(name: str, header: RunHeader, rounds: Sequence[tuple[RoundRecord, str]]) -> None:
    """Refuse records that were changed.

    Raises:
        WarehouseError: One does not have its hash, or does not follow the one before.
    """
    before = record_hash(header)
    for record, digest in rounds:
        if record.previous_hash != before or record_hash(record) != digest:
            raise WarehouseError(
                f"run {name!r}, round {record.round}",
                "was changed after it was recorded",
                f"see shockwave audit {name}",
            )
        before = digest


def prepare(header: RunHeader) -> Run:
    """A run that is ready but has no place in a warehouse yet: nothing is written.

    Raises:
        ShockwaveError: The policy, the back end or the jobs are at fault.
    """
    return _run("", header, Comparison(()))


_RUNTIMES: Mapping[RuntimeKind, type[VirtualCluster | FaithfulCluster]] = {
    RuntimeKind.VIRTUAL: VirtualCluster,
    RuntimeKind.FAITHFUL: FaithfulCluster,
    RuntimeKind.DOCKER: FaithfulCluster,  # until it is given machines
}


def _run(name: str, header: RunHeader, sink: Sink) -> Run:
    settings = header.settings
    profile, policy = header.throughputs, _policy(settings)
    return Run(
        name=name,
        header=header,
        profile=profile,
        policy=policy,
        runtime=_RUNTIMES[settings.runtime](
            header.specs,
            header.truths,
            profile,
            round_seconds=settings.round_seconds,
            restart_seconds=settings.restart_seconds,
        ),
        sink=sink,
        state=RunState.initial(header),
        schedules=_true_schedules(header, profile)
        if policy.clairvoyant or settings.forecasts is Basis.ORACLE
        else {},
    )


def _true_schedules(header: RunHeader, profile: Profile) -> dict[int, tuple[ProfiledRegime, ...]]:
    return {
        spec.job_id: tuple(
            ProfiledRegime(
                regime.batch_size,
                int(regime.epochs),
                profile.epoch_seconds(spec, regime.batch_size),
            )
            for regime in truth.profiled
        )
        for spec, truth in zip(header.specs, header.truths, strict=True)
    }


def _policy(settings: Settings) -> Policy:
    return make_policy(
        settings.policy,
        settings.backend,
        settings.fidelity,
        {parameter.name: parameter.value for parameter in settings.parameters},
    )


def finish(
    run: Run,
    warehouse: Path,
    writer: Writer,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a run from where it is to its end, and close it; returns its id.

    Args:
        run: The run.
        warehouse: Where it is.
        writer: Takes its records.
        driver: How rounds are called.
        progress: Told after every round.
        rounds: How many rounds to run before it is left open; to its end by default.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    last = math.inf if rounds is None else run.state.round + rounds
    try:
        with _rare_collections():
            while not run.finished and run.state.round < last:
                driver(run)
                progress(run)
        if run.finished:
            writer.compact()
    except KeyboardInterrupt:
        raise Interrupted(
            f"run {run.name!r}",
            f"interrupted in round {run.state.round}",
            f"go on with: shockwave resume {run.name} --warehouse {quote(str(warehouse))}",
        ) from None
    return run.name


@contextmanager
def _rare_collections() -> Iterator[None]:
    """Look for reference cycles a hundred times less often.

    A round makes and drops tens of thousands of small objects, none in a cycle; looking
    through them all again and again takes as long as the rest of the round. Of runs in
    several threads the first to start sets it and the last to end takes it back.
    """
    with _collecting:
        _rarely.append(gc.get_threshold())
        if len(_rarely) == 1:
            gc.set_threshold(100 * _rarely[0][0], *_rarely[0][1:])
            gc.freeze()  # the workload stays to the end
    try:
        yield
    finally:
        with _collecting:
            usual = _rarely.pop()
            if not _rarely:
                gc.unfreeze()
                gc.set_threshold(*usual)


_collecting = Lock()
_rarely: list[tuple[int, int, int]] = []
"""Thresholds before each run under way; the first is the usual one."""


def carry_out(run: Run, record: RoundRecord, digest: str) -> None:
    """Do again what a record says was done, without deciding it again.

    Raises:
        WarehouseError: The record was changed, or the virtual cluster does not repeat it.
    """
    if record.previous_hash != run.state.last_hash or record_hash(record) != digest:
        raise WarehouseError(
            f"run {run.name!r}, round {record.round}",
            "was changed after it was recorded",
            "restore it from a backup",
        )
    this = Round()
    collect(run, this)
    if this.observation != record.observation:
        raise WarehouseError(
            f"run {run.name!r}, round {record.round}",
            "the virtual cluster does not repeat what was recorded",
            "resume it with the version that started it",
        )
    preempted = [event for event in record.events if event.kind is EventKind.PREEMPTED]
    launched = [event for event in record.events if event.kind is not EventKind.PREEMPTED]
    run.runtime.preempt({event.job_id: event.reason for event in preempted})
    run.runtime.launch(record.round, [Launch(event.job_id, event.gpus) for event in launched])
    run.state = advance(run.header, run.state, record)


def packages() -> tuple[Package, ...]:
    """The packages that runs are made with, and their versions."""
    names = ("shockwave", "duckdb", "gurobipy", "highspy", "numpy", "pyarrow", "torch")
    return (
        Package("python", platform.python_version()),
        *(Package(name, version(name)) for name in names),
    )
