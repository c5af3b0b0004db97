"""Runs: prepared from their starts, and driven to their ends."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote

from containers.runtime import ResumePoint, Runtime, RuntimeFactory, Terms
from containers.virtual.application_cluster import ApplicationFactory
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.truth import GroundTruth
from containers.virtual.virtual_cluster import VirtualFactory
from flows.prefect_server.garbage import collect_rarely
from flows.runs.code_version import list_packages
from flows.runs.kept_states import StateKeeper
from flows.runs.snapshot import RunProgress
from flows.runs.start import make_policy_of
from predictor.application import Application
from predictor.basis import Basis
from predictor.errors import InputError, Interrupted, PluginError
from predictor.job import JobSpec
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Profile, Throughput, epoch_seconds
from solver.inventory import Inventory
from solver.plan import Policy
from tasks.commands import Orders
from tasks.plugged import PluggedFactory
from tasks.record import RunHeader, RuntimeKind, Start
from tasks.round import Round, run_round
from tasks.run import Run, Sink
from tasks.sources import Workload
from tasks.state import RunState
from warehouse.analytics.catalog import build
from warehouse.store.writer import DELAY_SECONDS, Writer

Driver = Callable[[Run], Round]
"""Executes the steps of a round."""

Progress = Callable[[Run], None]
"""Called after every round."""

Watch = Callable[[Start], Progress]
"""Takes the start of a run; returns the callback for its rounds."""


def unwatched(start: Start) -> Progress:
    """Watch nothing."""
    return lambda run: None


BEGINNING = ResumePoint()


@dataclass(frozen=True)
class Prepared:
    """A checked run without an id, a runtime or records.

    Attributes:
        start: Header and workload.
        place: Factory of the runtime of a simulation; a run in containers uses machines instead.
        throughput: The known profile.
        schedules: True batch-size schedules by job id; empty unless forecasts are an oracle's.
    """

    start: Start
    place: RuntimeFactory
    throughput: Throughput
    policy: Policy
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    state: RunState

    @contextmanager
    def open_run(
        self, sink: Sink, name: str = "", resume_point: ResumePoint = BEGINNING
    ) -> Iterator[Run]:
        """Open the runtime at a resume point, by default the beginning, within the context."""
        with closing(self.place.open(make_terms(self.start.header, name), resume_point)) as runtime:
            yield self.on(runtime, sink, name)

    def at(self, position: RunProgress) -> tuple["Prepared", ResumePoint]:
        """Return the run at a position, and its resume point there."""
        state = position.state
        beliefs = state.beliefs.items()
        return replace(self, state=state), ResumePoint(
            clock_seconds=state.clock_seconds,
            jobs=tuple(belief.spec for _, belief in beliefs),
            leases=state.leases,
            epochs={
                job: int(sum(part.epochs for part in belief.observed)) for job, belief in beliefs
            },
            run_seconds={job: belief.run_seconds for job, belief in beliefs},
            started=position.started,
        )

    def on(self, runtime: Runtime, sink: Sink, name: str = "") -> Run:
        """Return the run on a runtime that the caller has opened."""
        run = Run(
            name=name,
            header=self.start.header,
            throughput=self.throughput,
            policy=self.policy,
            source=self.start.workload.trace,
            runtime=runtime,
            sink=sink,
            state=self.state,
            schedules=self.schedules,
        )
        run.resize(Orders(), self.state.orders)
        return run


def prepare(start: Start, *, recorded: bool = False) -> Prepared:
    """Check a start and prepare its run; the jobs of a recorded run are not checked.

    Raises:
        ShockwaveError: The policy, the back end or a job is invalid.
    """
    header, workload = start.header, start.workload
    settings, profile = header.settings, header.throughputs
    policy = make_policy_of(settings)
    place = _place_of(header, workload.truths)
    if not (recorded or header.service):  # a service checks each job before it accepts it
        place.check(make_terms(header), workload.specs)
    oracle = policy.clairvoyant or settings.forecasts is Basis.ORACLE
    return Prepared(
        start=start,
        place=place,
        throughput=profile,
        policy=policy,
        schedules=_true_schedules(workload, profile) if oracle else {},
        state=RunState.initial(start),
    )


def _place_of(header: RunHeader, truths: Iterable[GroundTruth]) -> RuntimeFactory:
    """Return a simulation's runtime factory; runs in containers check their jobs elsewhere."""
    runtime = header.settings.runtime
    if header.applications:
        if runtime != RuntimeKind.VIRTUAL:
            problem = f"{runtime} does not run measured applications"
            raise InputError("runtime", problem, f"leave it {RuntimeKind.VIRTUAL.value}")
        return ApplicationFactory(truths)
    if runtime not in set(RuntimeKind):
        return PluggedFactory(runtime, truths)
    return (VirtualFactory if runtime == RuntimeKind.VIRTUAL else FaithfulFactory)(truths)


def make_terms(header: RunHeader, name: str = "") -> Terms:
    """Return the terms of a run for its runtime."""
    settings = header.settings
    forks = (Inventory(fork.pools) for fork in settings.forked)
    largest = max((settings.inventory, *forks), key=lambda inventory: inventory.gpus)
    return Terms(
        name,
        settings.round_seconds,
        settings.restart_seconds,
        header.throughputs,
        largest,
        adapts=header.adapts,
    )


def _true_schedules(workload: Workload, profile: Profile) -> dict[int, tuple[ProfiledRegime, ...]]:
    return {
        spec.job_id: _measured_schedule(profile.applications[spec.model], profile, spec)
        if spec.model in profile.applications
        else tuple(
            ProfiledRegime(
                regime.batch_size,
                int(regime.epochs),
                truth.isolated_seconds
                if spec.timed
                else epoch_seconds(profile, spec, regime.batch_size),
            )
            for regime in truth.profiled
        )
        for spec, truth in zip(workload.specs, workload.truths, strict=True)
    }


def _measured_schedule(
    app: Application, profile: Profile, spec: JobSpec
) -> tuple[ProfiledRegime, ...]:
    """Return the epochs of a measured application's job on its reference allocation."""
    rate = profile.rate(spec, spec.batch_size, profile.reference(spec))
    steps = (app.iterations(spec.batch_size, epoch) for epoch in range(app.epochs))
    return tuple(ProfiledRegime(spec.batch_size, 1, made / rate) for made in steps)


def simulate(
    start: Start,
    warehouse: Path,
    *,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Run a workload on the virtual cluster; return the run's id.

    By default it runs to its end. After `rounds` rounds it can be resumed.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, or the profile lacks an entry.
    """
    prepared = prepare(start)
    build(warehouse)
    with (
        Writer(
            warehouse,
            start,
            packages=list_packages(start.header.settings),
            delay_seconds=delay_of(driver),
        ) as writer,
        prepared.open_run(writer, writer.run) as run,
    ):
        return finish(run, warehouse, writer, driver, progress, rounds)


def finish(
    run: Run,
    warehouse: Path,
    writer: Writer,
    driver: Driver = run_round,
    progress: Progress = lambda run: None,
    rounds: int | None = None,
) -> str:
    """Drive a run from its current round to its end, or for some rounds; return its id.

    A run that has ended is compacted.

    Raises:
        Interrupted: The user stopped it.
        ShockwaveError: The warehouse cannot be written, the profile lacks an entry, or a plugin
            failed.
    """
    last = math.inf if rounds is None else run.state.round + rounds
    keeper = StateKeeper(warehouse)
    try:
        with collect_rarely():
            while not run.finished and run.state.round < last:
                driver(run)
                keeper.see(run)
                progress(run)
        if run.finished:
            writer.compact()
    except PluginError as error:
        problem = f"{error.problem}, in round {run.state.round} of run {run.name}"
        raise PluginError(error.place, problem, error.remedy) from error
    except KeyboardInterrupt:
        raise Interrupted(
            f"run {run.name!r}",
            f"interrupted in round {run.state.round}",
            f"continue with: shockwave resume {run.name} --warehouse {quote(str(warehouse))}",
        ) from None
    return run.name


def delay_of(driver: Driver) -> float:
    """Return the seconds for which rounds may stay unwritten; 0 if each has its own flow run."""
    return DELAY_SECONDS if driver is run_round else 0.0
