"""The live state of a run: a fold over its records."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from containers.runtime import EventKind, Observation
from predictor.belief import Belief
from predictor.forecast import Forecast
from predictor.history import History
from predictor.job import EpochReport, JobSpec
from predictor.learning import learned
from tasks.backoff import BackOff
from tasks.record import RoundRecord, RunHeader, Start
from tasks.sources import JobSource


@dataclass(frozen=True)
class RunState:
    """Where a run stands between two rounds.

    Attributes:
        round: Number of the next round.
        arrived: How many jobs have been admitted.
        beliefs: What is believed about each active job, by ascending job id.
        forecasts: What each is expected to do, as far as forecast.
        leases: GPUs that jobs hold, by job id.
        backoff: Who crashed or was lost, and how long they wait for it.
        ended: All that was observed of each job that ended, in the order of their ends.
        ended_gpu_seconds: GPU time that each of them took.
        history: What is learned from them, and from those that the header brings.
        memory: What the policy noted last.
        last_hash: Hash of the last record, or of the header.
    """

    round: int
    arrived: int
    beliefs: Mapping[int, Belief]
    forecasts: Mapping[int, Forecast]
    leases: Mapping[int, tuple[int, ...]]
    backoff: BackOff
    ended: tuple[Belief, ...]
    ended_gpu_seconds: tuple[float, ...]
    history: History
    memory: str
    last_hash: str

    @classmethod
    def initial(cls, start: Start) -> "RunState":
        """Before the first round."""
        history, header = History(), start.header
        for job in header.history:
            history = learned(history, job.belief, header.throughputs, header.settings.seed)
        return cls(0, 0, {}, {}, {}, BackOff(), (), (), history, "", start.digest)

    def finished(self, source: JobSource) -> bool:
        """Whether every job has arrived and ended."""
        return self.round > 0 and not self.beliefs and source.exhausted(self.arrived)

    def observed(
        self, header: RunHeader, seen: Observation, arrivals: Sequence[JobSpec]
    ) -> tuple["RunState", tuple[int, ...]]:
        """The state once a round's observation is taken in, before anything is decided.

        Args:
            header: The run.
            seen: What the runtime reported.
            arrivals: Jobs admitted.

        Returns:
            The state, and the active jobs to be forecast anew, by ascending job id: those
            that arrived, ran or have no forecast, and waiting ones of which much was
            learned from others (`_learned_of`).
        """
        reports: defaultdict[int, list[EpochReport]] = defaultdict(list)
        for report in seen.reports:
            reports[report.job_id].append(report)
        beliefs, forecasts, leases = dict(self.beliefs), dict(self.forecasts), dict(self.leases)
        for entry in seen.progress:
            job_id = entry.job_id
            beliefs[job_id] = beliefs[job_id].after(reports.get(job_id, ()), entry)
        ended: list[Belief] = []
        history = self.history
        for event in seen.finished:
            leases.pop(event.job_id, None)
            if not event.ends_job:
                continue
            belief = beliefs.pop(event.job_id)
            forecasts.pop(event.job_id, None)
            if event.kind is not EventKind.FINISHED:
                continue  # its end teaches nothing
            ended.append(belief)
            history = learned(history, belief, header.throughputs, header.settings.seed)
        beliefs |= {spec.job_id: Belief(spec) for spec in arrivals}
        if arrivals:
            beliefs = dict(sorted(beliefs.items()))
        changed = {entry.job_id for entry in seen.progress}
        changed |= {spec.job_id for spec in arrivals}
        changed |= beliefs.keys() - forecasts.keys()
        if ended:
            changed |= _learned_of(
                beliefs, [belief.spec for belief in ended], self.history, history
            )
        return replace(
            self,
            arrived=self.arrived + len(arrivals),
            beliefs=beliefs,
            forecasts=forecasts,
            leases=leases,
            backoff=self.backoff.after(seen, header.settings.round_seconds),
            ended=(*self.ended, *ended),
            ended_gpu_seconds=(
                *self.ended_gpu_seconds,
                *[belief.run_seconds * belief.spec.demand.least for belief in ended],
            ),
            history=history,
        ), tuple(sorted(changed & beliefs.keys()))

    def decided(self, record: RoundRecord, digest: str) -> "RunState":
        """The state after a round, from the one that took in what the round observed.

        Args:
            record: The whole round.
            digest: Its hash.
        """
        return replace(
            self,
            round=record.round + 1,
            forecasts={**self.forecasts, **{one.job_id: one for one in record.forecasts}},
            leases={lease.job_id: lease.gpus for lease in record.leases},
            memory=record.memory or self.memory,
            last_hash=digest,
        )


def _learned_of(
    beliefs: Mapping[int, Belief], ended: Sequence[JobSpec], before: History, after: History
) -> set[int]:
    """Jobs whose forecast may change much by what others went through.

    Those of the kind of one that ended, and all of a mode of which a course is known for
    the first time, or twice as many as when that was last so.
    """
    kinds = {(spec.mode, spec.kind) for spec in ended}
    modes = {
        spec.mode
        for spec in ended
        if after.size(spec.mode).bit_length() > before.size(spec.mode).bit_length()
    }
    return {
        job_id
        for job_id, belief in beliefs.items()
        if belief.spec.mode in modes or (belief.spec.mode, belief.spec.kind) in kinds
    }


def advance(header: RunHeader, state: RunState, record: RoundRecord, digest: str) -> RunState:
    """The state after one more record.

    Args:
        header: The run.
        state: The state before.
        record: The round.
        digest: Its hash.
    """
    observed, _ = state.observed(header, record.observation, record.arrivals)
    return observed.decided(record, digest)
