"""A run between its header and its first round: checked, and ready to be driven."""

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from containers.runtime import Place, Runtime, Standing, Terms
from containers.virtual.faithful import FaithfulPlace
from containers.virtual.virtual_cluster import VirtualPlace
from flows.runs.header import policy_of
from predictor.basis import Basis
from predictor.profile import Profile
from predictor.published_predictor import ProfiledRegime
from solver.plan import Policy
from tasks.record import RunHeader, RuntimeKind
from tasks.round import Run, Sink
from tasks.state import RunState


@dataclass(frozen=True)
class Prepared:
    """A run without an id, a runtime or a place in a warehouse: nothing is written of it.

    Attributes:
        header: What it starts from.
        profile: Throughputs, as the predictor reads them.
        policy: Who schedules.
        schedules: True batch-size schedules by job id, for an oracle only.
        state: Where it stands.
    """

    header: RunHeader
    profile: Profile
    policy: Policy
    schedules: Mapping[int, tuple[ProfiledRegime, ...]]
    state: RunState

    @contextmanager
    def under_way(
        self, place: Place, sink: Sink, name: str = "", standing: Standing | None = None
    ) -> Iterator[Run]:
        """The run with its runtime, which is open for as long as the run is driven.

        Args:
            place: Where its jobs run.
            sink: Where its records go.
            name: Its id.
            standing: Where it stands there; by default, at its beginning.
        """
        with closing(place.open(terms(self.header, name), standing or Standing())) as runtime:
            yield self.on(runtime, sink, name)

    def on(self, runtime: Runtime, sink: Sink, name: str = "") -> Run:
        """The run on a runtime that its caller has opened."""
        return Run(
            name=name,
            header=self.header,
            profile=self.profile,
            policy=self.policy,
            runtime=runtime,
            sink=sink,
            state=self.state,
            schedules=self.schedules,
        )


def prepare(header: RunHeader) -> Prepared:
    """A run that can be driven.

    Raises:
        ShockwaveError: The policy, the back end or the jobs are at fault.
    """
    settings, profile = header.settings, header.throughputs
    policy = policy_of(settings)
    virtual_place(header).check(terms(header), header.specs)
    oracle = policy.clairvoyant or settings.forecasts is Basis.ORACLE
    return Prepared(
        header=header,
        profile=profile,
        policy=policy,
        schedules=_true_schedules(header, profile) if oracle else {},
        state=RunState.initial(header),
    )


def terms(header: RunHeader, name: str = "") -> Terms:
    """What a runtime has to know of a run."""
    settings = header.settings
    return Terms(name, settings.round_seconds, settings.restart_seconds, header.throughputs)


def virtual_place(header: RunHeader) -> VirtualPlace | FaithfulPlace:
    """The virtual cluster that plays a run's jobs; of a run in containers, as those behave."""
    if header.settings.runtime is RuntimeKind.VIRTUAL:
        return VirtualPlace(header.truths)
    return FaithfulPlace(header.truths)


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
