"""The live state of a run: a fold over its records."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from predictor.job import EpochReport, JobProgress
from predictor.posterior import Belief
from warehouse.record import RoundRecord, RunHeader, record_hash


@dataclass(frozen=True)
class RunState:
    """Where a run stands between two rounds.

    Attributes:
        round: Number of the next round.
        arrived: How many of the header's jobs have been admitted.
        beliefs: What is believed about each active job, by job id.
        leases: GPUs that jobs hold, by job id.
        last_hash: Hash of the last record, or of the header.
    """

    round: int
    arrived: int
    beliefs: Mapping[int, Belief]
    leases: Mapping[int, tuple[int, ...]]
    last_hash: str

    @classmethod
    def initial(cls, header: RunHeader) -> "RunState":
        """Before the first round."""
        return cls(0, 0, {}, {}, record_hash(header))

    def finished(self, header: RunHeader) -> bool:
        """Whether every job has arrived and ended."""
        return self.round > 0 and self.arrived == len(header.specs) and not self.beliefs


def observed_beliefs(
    header: RunHeader,
    state: RunState,
    *,
    arrivals: Iterable[int],
    finished: Iterable[int],
    reports: Iterable[EpochReport],
    progress: Iterable[JobProgress],
) -> dict[int, Belief]:
    """Beliefs about the active jobs after a round's observation, by ascending job id.

    Args:
        header: The run.
        state: Before the observation.
        arrivals: Jobs admitted, the next ones of the header.
        finished: Jobs that ended.
        reports: Completed epochs.
        progress: Where jobs that ran stand.
    """
    gone = frozenset(finished)
    by_job: defaultdict[int, list[EpochReport]] = defaultdict(list)
    for report in reports:
        by_job[report.job_id].append(report)
    standing = {entry.job_id: entry for entry in progress}
    beliefs = {
        job_id: belief.after(by_job.get(job_id, ()), standing.get(job_id))
        for job_id, belief in state.beliefs.items()
        if job_id not in gone
    }
    for spec in header.specs[state.arrived : state.arrived + len(list(arrivals))]:
        beliefs[spec.job_id] = Belief(spec)
    return dict(sorted(beliefs.items()))


def advance(header: RunHeader, state: RunState, record: RoundRecord) -> RunState:
    """The state after one more record."""
    return RunState(
        round=record.round + 1,
        arrived=state.arrived + len(record.arrivals),
        beliefs=observed_beliefs(
            header,
            state,
            arrivals=record.arrivals,
            finished=[event.job_id for event in record.finished],
            reports=record.reports,
            progress=record.progress,
        ),
        leases={launch.job_id: launch.gpus for launch in record.launches},
        last_hash=record_hash(record),
    )
