"""What a run learns from its jobs: trajectories, errors of forecasts, and noise of speeds."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from predictor.arrivals import COUNTED
from predictor.belief import Belief
from predictor.forecast import Forecast, run_time
from predictor.history import History
from predictor.intervals import Calibration, Scored, is_scored, tenth_of
from predictor.posterior import learn
from predictor.speed_noise import STEADY, SpeedNoise, expect_noise
from tasks.record import RunHeader, RuntimeKind

MOST_FINISHED = 4096
"""Most finished jobs kept in the state of a service, which never ends. An engineering bound on
memory; no sweep is recorded."""

MOST_RATIOS = 64
"""Most ratios of isolated run times kept per mode. An engineering bound on memory."""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """A job that ended in a round.

    Attributes:
        gpus: Number of GPUs it last held.
        isolated_ratio: Its isolated run time over what its training says that is: 1, unless the
            runtime knows better.
        at_limit: Whether it is a timed job that reached its limit: it did not complete, but its run
            time is known.
    """

    belief: Belief
    gpus: int
    isolated_ratio: float
    finished: bool
    at_limit: bool


@dataclass(frozen=True)
class Learning:
    """What a run has learned from its jobs.

    Attributes:
        finished: Final beliefs about the finished jobs, in the order of their ends; in a service,
            the latest `MOST_FINISHED`.
        gpu_seconds: GPU-seconds of each of them: its run time times the GPUs it held last.
        history: Trajectories of these jobs, and of the header's finished jobs.
        unscored: Forecasts of active jobs to be scored when the jobs finish, one per tenth of the
            epochs, by job id.
        calibration: Scores of the forecasts of finished jobs.
        isolated_ratios: See `EndedJob`; of the latest `MOST_RATIOS` finished jobs, by mode.
    """

    finished: tuple[Belief, ...] = ()
    gpu_seconds: tuple[float, ...] = ()
    finished_ids: frozenset[int] = frozenset()
    history: History = field(default_factory=History)
    unscored: Mapping[int, tuple[Scored, ...]] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    speed_noise: SpeedNoise = STEADY
    isolated_ratios: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @classmethod
    def initial(cls, header: RunHeader) -> "Learning":
        """Return the learning before the first round, from the header's finished jobs."""
        settings = header.settings
        before = [job.belief for job in header.history]
        history = learn(History(), before, header.throughputs, settings.seed)
        if settings.runtime in (RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL):
            return cls(history=history)
        return cls(history=history, speed_noise=expect_noise(settings.round_seconds))

    def after(
        self, header: RunHeader, ended: Sequence[EndedJob], trained: Iterable[tuple[Belief, Belief]]
    ) -> "Learning":
        """Return the learning after a round.

        Truncated trajectories count only if the job reached its limit. `trained` has the beliefs
        about each job that trained, before and after the round.
        """
        noise = self.speed_noise.after(trained, header.throughputs)
        if not ended:
            return self if noise is self.speed_noise else replace(self, speed_noise=noise)
        unscored = dict(self.unscored)
        scored = [(job, unscored.pop(job.belief.spec.job_id, ())) for job in ended]
        known = [job.belief for job in ended if job.finished or job.at_limit]
        history = learn(self.history, known, header.throughputs, header.settings.seed)
        finished = [job for job in ended if job.finished]
        judged = ((made, job.belief.reference_seconds) for job, made in scored if job.finished)
        latest = slice(-MOST_FINISHED if header.service else None, None)
        gpu_seconds = [job.belief.run_seconds * job.gpus for job in finished]
        ratios = dict(self.isolated_ratios)
        for job in finished:
            mode = job.belief.spec.mode.value
            ratios[mode] = (*ratios.get(mode, ()), job.isolated_ratio)[-MOST_RATIOS:]
        return Learning(
            finished=(*self.finished, *(job.belief for job in finished))[latest],
            gpu_seconds=(*self.gpu_seconds, *gpu_seconds)[latest],
            finished_ids=self.finished_ids.union(job.belief.spec.job_id for job in finished),
            history=history,
            unscored=unscored,
            calibration=self.calibration.after(judged),
            speed_noise=noise,
            isolated_ratios=ratios,
        )

    def with_latest_arrivals(self) -> "Learning":
        """Return the learning with only those finished jobs that a later job may be like.

        These are the latest that count (`predictor.arrivals`); an array counts once.
        """
        by_arrival = sorted(self.finished, key=lambda job: job.spec.arrival_seconds)
        firsts = dict.fromkeys([job.spec.first_task for job in by_arrival])
        latest = {*[*firsts][-COUNTED - 1 :]}
        kept = tuple([job for job in self.finished if job.spec.first_task in latest])
        return replace(self, finished=kept)

    def with_forecasts(
        self, header: RunHeader, forecasts: Iterable[Forecast], beliefs: Mapping[int, Belief]
    ) -> "Learning":
        """Add new or changed forecasts, which are scored when their jobs finish."""
        new: dict[int, tuple[Scored, ...]] = {}
        for forecast in forecasts:
            belief, made = beliefs[forecast.job_id], self.unscored.get(forecast.job_id, ())
            if is_scored(belief) and (not made or made[-1].tenth < tenth_of(belief)):
                allocation = header.throughputs.reference(belief.spec)
                time = run_time(forecast, belief.spec, header.throughputs, allocation)
                new[forecast.job_id] = (*made, Scored.of(belief, time, self.speed_noise))
        return replace(self, unscored={**self.unscored, **new}) if new else self

    def changed_priors(
        self, before: "Learning", ended: Sequence[EndedJob], beliefs: Mapping[int, Belief]
    ) -> set[int]:
        """Return the active jobs whose prior changed substantially as jobs finished in a round.

        These are the jobs of the same kind as a finished job, and all jobs of a mode whose number
        of trajectories reached a power of two.
        """
        specs = [job.belief.spec for job in ended if job.finished]
        kinds = {(spec.mode, spec.cohort) for spec in specs}
        sizes = self.history.size, before.history.size
        modes = {
            s.mode for s in specs if sizes[0](s.mode).bit_length() > sizes[1](s.mode).bit_length()
        }
        return (
            {
                job_id
                for job_id, belief in beliefs.items()
                if belief.spec.mode in modes or (belief.spec.mode, belief.spec.cohort) in kinds
            }
            if specs
            else set()
        )
