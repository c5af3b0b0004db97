"""A run made ready from its start: checked before anything is written, then opened."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from containers.runtime import Place, Runtime, Standing, Terms
from containers.virtual.faithful import FaithfulPlace
from containers.virtual.virtual_cluster import VirtualPlace
from flows.runs.start import policy_of
from predictor.basis import Basis
from predictor.published_predictor import ProfiledRegime
from predictor.throughput import Profile, Throughput, epoch_seconds
from solver.inventory import Inventory
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
        place: A virtual clock and its ground truths; a run in containers has machines instead.
        throughput: The profile, as far as it is known.
        policy: The scheduling policy.
        schedules: True batch-size schedules by job id; empty unless forecasts are an oracle's.
        state: State before the next round.
    """

    start: Start
    place: Place
    throughput: Throughput
    policy: Policy
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    state: RunState

    @contextmanager
    def under_way(self, sink: Sink, name: str = "") -> Iterator[Run]:
        """The run from its beginning, on a virtual clock that is open within the context.

        Args:
            sink: Takes its records.
            name: Its id.
        """
        with closing(self.place.open(terms(self.start.header, name), Standing())) as runtime:
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
    virtual = settings.runtime is RuntimeKind.VIRTUAL
    place = VirtualPlace(workload.truths) if virtual else FaithfulPlace(workload.truths)
    if not header.service:  # each of its jobs is checked before it is accepted
        place.check(terms(header), workload.specs)
    oracle = policy.clairvoyant or settings.forecasts is Basis.ORACLE
    return Prepared(
        start=start,
        place=place,
        throughput=profile,
        policy=policy,
        schedules=_true_schedules(workload, profile) if oracle else {},
        state=RunState.initial(start),
    )


def terms(header: RunHeader, name: str = "") -> Terms:
    """The terms of a run for its runtime."""
    settings = header.settings
    forks = (Inventory(fork.pools) for fork in settings.forked)
    largest = max((settings.inventory, *forks), key=lambda inventory: inventory.gpus)
    return Terms(
        name, settings.round_seconds, settings.restart_seconds, header.throughputs, largest
    )


def _true_schedules(workload: Workload, profile: Profile) -> dict[int, tuple[ProfiledRegime, ...]]:
    return {
        spec.job_id: tuple(
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
