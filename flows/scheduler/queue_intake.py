"""The source of jobs that users submitted to Slurm: they come through the inbox like all others."""

import logging
import time
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace

from containers.leasing.engine import Refused
from containers.slurm.brain import SlurmBrain
from containers.slurm.commands import Commands
from containers.slurm.declaring import SlurmIdentity, declare
from containers.slurm.hand_over import RUN, WAIT, update_jobs
from containers.slurm.parsing import SlurmAway
from containers.slurm.queue import JobDetails, SlurmJob, get_details
from flows.prefect_server.logs import log_line
from flows.scheduler.intake import InboxSource
from predictor.errors import InputError
from predictor.job import JobSpec
from solver.inventory import Inventory
from tasks.sources import Intake, SourcePosition
from warehouse.inbox.entries import SUBMIT, Submission
from warehouse.inbox.inbox import Inbox

LOOK_SECONDS = 1.0
"""Shortest time between two looks at the queue while nothing runs. An engineering choice."""


@dataclass
class QueueSource:
    """A `JobSource` that submits Slurm's new jobs to the inbox, then returns the inbox's.

    A job is taken once it is eligible: its dependencies and begin time are Slurm's. Jobs without
    GPUs are released at once; jobs that name nodes, and those that no node can run, wait on.
    """

    inbox: Inbox
    entries: InboxSource
    brain: SlurmBrain
    commands: Commands
    inventory: Inventory
    _details: dict[tuple[str, int], JobDetails] = field(default_factory=dict)
    _taken: set[tuple[str, int]] = field(default_factory=set)
    _looked: float = 0.0

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """See `JobSource.until`."""
        self._take()
        return self.entries.until(clock_seconds, taken)

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """Look for new jobs; see `InboxSource.idle_until`."""
        if time.monotonic() >= self._looked + LOOK_SECONDS:
            self.brain.look()
            self._looked = time.monotonic()
            self._take()
        return self.entries.idle_until(taken, quotas)

    def is_exhausted(self, taken: SourcePosition) -> bool:
        """See `JobSource.is_exhausted`."""
        return False

    def check(self, spec: JobSpec) -> None:
        """Refuse what is not, word for word, what a waiting job of the queue was declared as.

        Raises:
            InputError: The job came from elsewhere, or does not wait any more.
        """
        for job in self.brain.queue:
            if SlurmIdentity.of(job).variables == spec.environment and job.waits:
                with suppress(SlurmAway, Refused):
                    declared = declare(job, self._describe(job), self.inventory)
                    at = spec.arrival_seconds
                    if replace(declared, job_id=spec.job_id, arrival_seconds=at) == spec:
                        return
        raise InputError("job", "does not wait in Slurm", "submit jobs with sbatch")

    def _take(self) -> None:
        """Submit the queue's new jobs."""
        now = time.time()
        there = {(job.id, job.submitted) for job in self.brain.queue}
        self._taken &= there
        self._details = {key: self._details[key] for key in there & self._details.keys()}
        waiting = [
            job
            for job in self.brain.queue
            if job.qos == WAIT and job.may_start(now) and not job.names_nodes
            if not self.brain.knows(job)
        ]
        without = [job.id for job in waiting if not job.gpus]
        if without:
            with suppress(SlurmAway):
                update_jobs(self.commands, without, (f"QOS={RUN}",))
        active = Counter(
            job.array
            for job in self.brain.queue
            if (job.id, job.submitted) in self._taken or self.brain.knows(job)
            if job.waits or job.holds_gpus
        )
        submissions = []
        for job in waiting:
            key = job.id, job.submitted
            if not job.gpus or key in self._taken:
                continue
            with suppress(SlurmAway, Refused):
                details = self._describe(job)
                if details.at_once and active[job.array] >= details.at_once:
                    continue
                active[job.array] += 1
                self._taken.add(key)
                try:
                    spec = declare(job, details, self.inventory)
                except InputError as error:
                    log_line("scheduler", f"left to wait: {error}", level=logging.WARNING)
                    continue
                named = f"slurm {job.id} {job.submitted}"
                submissions.append(Submission(SUBMIT, job=spec, by=job.user, key=named))
        if submissions:
            self.inbox.accept(submissions)

    def _describe(self, job: SlurmJob) -> JobDetails:
        key = job.id, job.submitted
        if key not in self._details:
            self._details[key] = get_details(self.commands, job.id)
        return self._details[key]
