"""A prepared run: checked, and ready for its first round."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from containers.runtime import Place, Runtime, Standing, Terms
from containers.virtual.faithful import FaithfulPlace
from containers.virtual.truth import TruthPlace
from containers.virtual.virtual_cluster import VirtualPlace
from flows.runs.start import policy_of
from predictor.basis import Basis
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Profile, Throughput, epoch_seconds
from solver.plan import Policy
from tasks.record import RunHeader, RuntimeKind, Start
from tasks.round import Run, Sink
from tasks.sources import Workload
from tasks.state import RunState


@dataclass(frozen=True)
class Prepared:
    """A checked run before it has an id, a runtime or records.

    Attributes:
        start: Header and workload.
        throughput: The profile, as far as it is known.
        policy: The scheduling policy.
        schedules: True batch-size schedules by job id; empty unless forecasts are an oracle's.
        state: State before the next round.
    """

    start: Start
    throughput: Throughput
    policy: Policy
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    state: RunState

    @contextmanager
    def under_way(
        self, place: Place, sink: Sink, name: str = "", standing: Standing | None = None
    ) -> Iterator[Run]:
        """The run on a runtime that is open within the context.

        Args:
            place: Opens the runtime.
            sink: Takes its records.
            name: Its id.
            standing: State of its jobs on the runtime; by default that of a new run.
        """
        with closing(place.open(terms(self.start.header, name), standing or Standing())) as runtime:
            yield self.on(runtime, sink, name)

    def on(self, runtime: Runtime, sink: Sink, name: str = "") -> Run:
        """The run on a runtime that the caller has opened."""
        return Run(
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


def prepare(start: Start) -> Prepared:
    """Check a start and prepare its run.

    Raises:
        ShockwaveError: The policy, the back end or a job is invalid.
    """
    header, workload = start.header, start.workload
    settings, profile = header.settings, header.throughputs
    policy = policy_of(settings)
    virtual_place(start).check(terms(header), workload.specs)
    oracle = policy.clairvoyant or settings.forecasts is Basis.ORACLE
    return Prepared(
        start=start,
        throughput=profile,
        policy=policy,
        schedules=_true_schedules(workload, profile) if oracle else {},
        state=RunState.initial(start),
    )


def terms(header: RunHeader, name: str = "") -> Terms:
    """The terms of a run for its runtime."""
    settings = header.settings
    return Terms(name, settings.round_seconds, settings.restart_seconds, header.throughputs)


def virtual_place(start: Start) -> TruthPlace:
    """The virtual cluster of a run; for a run in containers, the faithful cluster."""
    if start.header.settings.runtime is RuntimeKind.VIRTUAL:
        return VirtualPlace(start.workload.truths)
    return FaithfulPlace(start.workload.truths)


def _true_schedules(workload: Workload, profile: Profile) -> dict[int, tuple[ProfiledRegime, ...]]:
    return {
        spec.job_id: tuple(
            ProfiledRegime(
                regime.batch_size,
                int(regime.epochs),
                epoch_seconds(profile, spec, regime.batch_size),
            )
            for regime in truth.profiled
        )
        for spec, truth in zip(workload.specs, workload.truths, strict=True)
    }
