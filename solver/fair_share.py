"""Simulate an equal share of the cluster beside the schedule.

Finish-time fairness compares a job with 1/N of the cluster (Themis, NSDI '20; Shockwave,
NSDI '23, section 2), where N is the number of active jobs. N changes with each arrival and end, so
the service under an equal share is known only up to now.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from predictor.arrivals import latest
from predictor.job import JobSpec


@dataclass(frozen=True, slots=True)
class FairShare:
    """The service that active jobs would have received under an equal share.

    At contention c every active job runs at 1/c of its isolated speed, and so does a virtual
    clock of the whole cluster (generalised processor sharing; Parekh and Gallager, 1993). A job's
    service is the virtual clock's advance since the job arrived.

    Attributes:
        contention: c, active jobs over GPUs in service, at least 1; infinite without GPUs, so
            that the virtual clock stops.
        joined: Virtual clock at the arrival of each active job, by job id.
        arrived: Latest arrival times, ascending, as many as the arrival forecast reads. Tasks of
            an array arrive together, so only the first counts.
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
        """Return the equal share at `clock_seconds`, with the `gpus` then in service, possibly 0.

        `arrivals` are since the last clock; `active` are the ids then. Jobs in `held` are on hold:
        they do not compete, and receive no service.
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
        """Return an active job's service, in seconds of its isolated run time."""
        return self.virtual_seconds - self.joined[job_id]
