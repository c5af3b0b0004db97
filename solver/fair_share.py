"""An even share of the cluster, simulated beside the schedule.

Finish-time fairness is measured against 1/N of the cluster (Themis, NSDI '20; Shockwave,
NSDI '23, section 2), with N the number of active jobs: N changes with each arrival and end, and
the even share of a job so far is known without looking ahead.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from predictor.arrivals import latest
from predictor.job import JobSpec


@dataclass(frozen=True, slots=True)
class FairShare:
    """The service that active jobs would have had under an even share.

    At contention c every active job runs at 1/c of its isolated speed, and so does a virtual
    clock of the whole cluster (generalised processor sharing; Parekh and Gallager, 1993). What
    that clock has advanced since a job arrived is the job's even service.

    Attributes:
        clock_seconds: The run's clock.
        virtual_seconds: The virtual clock.
        contention: c, active jobs over GPUs in service, at least 1; infinite without any GPUs,
            when no job is served.
        joined: Virtual clock at the arrival of each active job, by job id.
        arrived: Arrival times of the latest jobs, ascending, as many as the forecast of arrivals
            reads; of an array, whose tasks arrive together, that of its first task.
    """

    clock_seconds: float = 0.0
    virtual_seconds: float = 0.0
    contention: float = 1.0
    joined: Mapping[int, float] = field(default_factory=dict)
    arrived: tuple[float, ...] = ()

    def after(
        self,
        clock_seconds: float,
        arrivals: Iterable[JobSpec],
        active: Iterable[int],
        gpus: int,
        held: Collection[int] = (),
    ) -> "FairShare":
        """The even share some time later.

        Args:
            clock_seconds: The run's clock by then.
            arrivals: Jobs that have arrived since.
            active: Ids of the jobs that are active by then.
            gpus: GPUs in service by then; 0 if none is.
            held: Ids of active jobs that are on hold by then: they do not compete, and the
                advance of the virtual clock is no service to them.
        """
        passed = (clock_seconds - self.clock_seconds) / self.contention
        virtual = self.virtual_seconds + passed
        joined, submitted = dict(self.joined), []
        for spec in arrivals:
            if not spec.options.task.place:
                submitted.append(spec.arrival_seconds)
            joined[spec.job_id] = virtual - (clock_seconds - spec.arrival_seconds) / self.contention
        kept = {job_id: joined[job_id] for job_id in active}
        kept |= {job_id: min(kept[job_id] + passed, virtual) for job_id in held}
        contention = max(1.0, (len(kept) - len(held)) / gpus) if gpus else math.inf
        arrived = latest(sorted((*self.arrived, *submitted))) if submitted else self.arrived
        return FairShare(clock_seconds, virtual, contention, kept, arrived)

    def service(self, job_id: int) -> float:
        """Even service of an active job, in seconds of its isolated run time."""
        return self.virtual_seconds - self.joined[job_id]
