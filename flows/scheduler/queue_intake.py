"""The source of jobs that users submitted to Slurm: they come through the inbox like all others."""

import logging
import math
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count

from containers.leasing.engine import Refused
from containers.slurm.accounts import list_budgets
from containers.slurm.brain import SlurmBrain
from containers.slurm.commands import Commands
from containers.slurm.declaring import declare
from containers.slurm.hand_over import RUN, WAIT, read_config, update_jobs
from containers.slurm.parsing import SlurmAway
from containers.slurm.queue import JobDetails, SlurmJob, get_details, sort_jobs
from flows.prefect_server.logs import log_line
from flows.scheduler.intake import InboxSource
from predictor.errors import InputError
from predictor.job import JobSpec
from solver.inventory import Inventory
from tasks.sources import Intake, SourcePosition
from warehouse.inbox.accepting import KeyUsed
from warehouse.inbox.entries import SUBMIT, Submission
from warehouse.inbox.inbox import Inbox

LOOK_SECONDS = 1.0
"""Shortest time between two looks at the queue while nothing runs. An engineering choice."""


FIRST_SECONDS, LONGEST_SECONDS = 2.0, 3600.0
"""Time until a job that was refused is submitted again, which doubles each time, and its bound."""
SHARES_SECONDS, SHARES_AGAIN_SECONDS = 600.0, 30.0
"""Time between two questions for the accounts' fair shares; after one that failed. Engineering
choices."""
SHARES = "slurm"
"""Submitter of the budgets that fair shares say."""
MOST_ASKED = 50
"""Most questions about single jobs at a time, so that a round does not wait for them."""


@dataclass(frozen=True, slots=True)
class _Try:
    """The last submission of a job of Slurm's.

    Attributes:
        attempt: Its number, from 0.
        entry: Number of its entry; 0 if it was not accepted.
        again: Earliest time of the next one on the monotonic clock, in seconds.
    """

    attempt: int
    entry: int
    again: float


@dataclass
class QueueSource:
    """A `JobSource` that submits Slurm's new jobs to the inbox, then returns the inbox's.

    A job is taken once it is eligible: its dependencies and begin time are Slurm's. Jobs without
    GPUs are released at once; jobs that name nodes, and those that no node can run, wait on.

    A job that waits although its entry was taken in is submitted again: it was refused while Slurm
    was away, or its owner held or changed it. Tenants' budgets follow changes of fair shares; an
    operator's holds until the next one.
    """

    inbox: Inbox
    entries: InboxSource
    brain: SlurmBrain
    commands: Commands
    inventory: Inventory
    _details: dict[tuple[str, int], JobDetails] = field(default_factory=dict)
    _tries: dict[tuple[str, int], _Try] = field(default_factory=dict)
    _looked: float = 0.0
    _ask_shares: float = -math.inf

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """See `JobSource.until`."""
        self._follow_shares()
        self._take(taken)
        return self.entries.until(clock_seconds, taken)

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """Look for new jobs; see `InboxSource.idle_until`."""
        if time.monotonic() >= self._looked + LOOK_SECONDS:
            self.brain.look()
            self._looked = time.monotonic()
            self._take(taken)
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
            if f"SLURM_JOB_ID={job.id}" not in spec.environment or not job.waits:
                continue
            with suppress(SlurmAway, Refused):
                declared = declare(job, self._describe(job), self.inventory)
                at = spec.arrival_seconds
                if replace(declared, job_id=spec.job_id, arrival_seconds=at) == spec:
                    return
        raise InputError("job", "does not wait in Slurm", "submit jobs with sbatch")

    def _follow_shares(self) -> None:
        """Give tenants the budgets that Slurm's fair shares say, if those have changed."""
        if time.monotonic() < self._ask_shares:
            return
        self._ask_shares = time.monotonic() + SHARES_AGAIN_SECONDS
        with suppress(SlurmAway, Refused):
            config = read_config(self.commands.call("scontrol", "show", "config"))
            budgets = list_budgets(self.commands, config.get("ClusterName", ""))
            self._ask_shares = time.monotonic() + SHARES_SECONDS
            for account, budget in budgets.items():
                try:
                    if self.inbox.terms(account, by=SHARES).budget != budget:
                        self.inbox.tenant(account, {"budget": budget}, by=SHARES)
                except InputError as error:
                    said = f"account {account!r} has no budget: {error}"
                    log_line("scheduler", said, level=logging.WARNING)

    def _take(self, taken: SourcePosition) -> None:
        """Submit the queue's new jobs."""
        queue, known = self.brain.queue, self.brain.list_known()
        there, described = {*map(_key, queue)}, {*map(_details_key, queue)}
        if queue:  # it is empty, too, while Slurm is away
            self._tries = {key: self._tries[key] for key in there & self._tries.keys()}
            self._details = {key: self._details[key] for key in described & self._details.keys()}
        waiting = [
            job
            for job in sort_jobs(queue)
            if job.qos == WAIT and job.may_start(time.time()) and not job.names_nodes
            if job.id not in known
        ]
        without = [job.id for job in waiting if not job.gpus]
        if without:
            with suppress(SlurmAway):
                update_jobs(self.commands, without, (f"QOS={RUN}",))
        active = Counter(
            job.array
            for job in queue
            if job.id in known or self._is_pending(job, taken)
            if job.waits or job.holds_gpus
        )
        new, asked = dict[SlurmJob, JobSpec](), 0
        for job in waiting:
            last = self._tries.get(_key(job))
            early = last is not None and time.monotonic() < last.again
            if not job.gpus or early or self._is_pending(job, taken):
                continue
            asked += _details_key(job) not in self._details
            if asked > MOST_ASKED:
                break
            with suppress(SlurmAway, Refused):
                details = self._describe(job)
                if details.at_once and active[job.array] >= details.at_once:
                    continue
                try:
                    new[job] = declare(job, details, self.inventory)
                    active[job.array] += 1
                except InputError as error:
                    self._leave(job, last.attempt if last else 0, error)
        self._submit(new, taken)

    def _is_pending(self, job: SlurmJob, taken: SourcePosition) -> bool:
        """Return whether a job was submitted and its entry not yet taken in."""
        last = self._tries.get(_key(job))
        return last is not None and last.entry > taken.entries

    def _submit(self, new: Mapping[SlurmJob, JobSpec], taken: SourcePosition) -> None:
        """Submit jobs together, and those one by one that were submitted before."""
        first = [job for job in new if _key(job) not in self._tries]
        with suppress(InputError):  # of one of them
            entries = self.inbox.accept([_make_submission(job, new[job], 0) for job in first])
            for job, entry in zip(first, entries, strict=True):
                self._note(job, 0, entry.number)
        for job, spec in new.items():
            if not self._is_pending(job, taken):
                self._submit_again(job, spec, taken)

    def _submit_again(self, job: SlurmJob, spec: JobSpec, taken: SourcePosition) -> None:
        """Submit a job under the first key that is not of an earlier declaration or entry."""
        last = self._tries.get(_key(job))
        for attempt in count(last.attempt + 1 if last else 0):
            try:
                (entry,) = self.inbox.accept([_make_submission(job, spec, attempt)])
            except KeyUsed:
                continue
            except InputError as error:
                self._leave(job, attempt, error)
                return
            if entry.number > taken.entries:
                self._note(job, attempt, entry.number)
                return

    def _leave(self, job: SlurmJob, attempt: int, error: InputError) -> None:
        log_line("scheduler", f"left to wait: {error}", level=logging.WARNING)
        self._note(job, attempt, 0, LONGEST_SECONDS)

    def _note(self, job: SlurmJob, attempt: int, entry: int, seconds: float = 0.0) -> None:
        wait = seconds or min(FIRST_SECONDS * 2.0 ** min(attempt, 30), LONGEST_SECONDS)
        self._tries[_key(job)] = _Try(attempt, entry, time.monotonic() + wait)

    def _describe(self, job: SlurmJob) -> JobDetails:
        """Return a job's details, those of an array once for all tasks."""
        key = _details_key(job)
        if key not in self._details:
            self._details[key] = get_details(self.commands, job.id)
        return self._details[key]


def _key(job: SlurmJob) -> tuple[str, int]:
    return job.id, job.submitted


def _details_key(job: SlurmJob) -> tuple[str, int]:
    return job.array or job.id, job.submitted


def _make_submission(job: SlurmJob, spec: JobSpec, attempt: int) -> Submission:
    key = f"slurm {job.id} {job.submitted}" + f" {attempt}" * bool(attempt)
    return Submission(SUBMIT, job=spec, by=job.user, key=key)
