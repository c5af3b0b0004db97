"""Sources of a service's jobs and commands: the inbox, or the records when rounds are repeated."""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError, ShockwaveError
from predictor.job import JobSpec
from tasks.commands import NO_TERMS, Command, CommandKind, NewNode, TenantTerms
from tasks.sources import Intake, SourcePosition, Trace
from warehouse.inbox.entries import Entry
from warehouse.inbox.inbox import Inbox

NODES_OF_SLURM = "cannot be given: a service on a Slurm has the nodes that it began with"
"""Why a node cannot be added."""
NEW_SERVICE = "begin another service, in a new warehouse, for more nodes"
"""What to do instead."""


def refuse_image(node: int, number: int) -> str:
    """Refuse a new image of a node.

    Raises:
        InputError: Always, as the nodes have none.
    """
    raise InputError("node", "has no image on this cluster", "change images of Docker hosts")


@dataclass(frozen=True)
class InboxSource:
    """An inbox as a `JobSource`.

    An entry's time on the run's clock is its acceptance, moved to after the last round if a round
    has started since. Times of windows are converted to the run's clock.

    Attributes:
        now: Returns the run's clock in seconds.
        speed: Seconds of the run per second.
        check: Refuses a job that cannot be scheduled; also takes the tenant's new terms if the same
            round has taken them in.
        add: Prepares a node, or refuses it; also takes the nodes added earlier in the same round.
        truth: Makes a job's ground truth; None for real jobs.
        change_image: Gives a node its new image for jobs above a number; returns the image's id.
        check_order: Refuses a command, given by its kind and target.
    """

    inbox: Inbox
    now: Callable[[], float]
    speed: float
    check: Callable[[JobSpec, TenantTerms | None], None]
    add: Callable[[NewNode, Sequence[NewNode]], None]
    truth: Callable[[JobSpec], GroundTruth] | None = None
    change_image: Callable[[int, int], str] = refuse_image
    check_order: Callable[[str, int], None] = lambda kind, target: None

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """See `JobSource.until`."""
        if clock_seconds <= taken.clock_seconds:
            return Intake()  # no entry can have arrived since
        at = max(math.nextafter(taken.clock_seconds, math.inf), 0.0)
        jobs, commands, submitters = list[JobSpec](), list[Command](), list[str]()
        terms, nodes = dict[str, TenantTerms](), list[NewNode]()
        for entry in self.inbox.entries_after(taken.entries):
            at = min(max(at, self._time_of(entry)), clock_seconds)
            if entry.kind == CommandKind.TENANT:
                terms[entry.terms.tenant] = entry.terms
            accepted = self._convert(entry, at, terms, nodes)
            if isinstance(accepted, Command) and accepted.kind is CommandKind.ADD:
                nodes.append(accepted.node)
            if isinstance(accepted, JobSpec):
                jobs.append(accepted)
                submitters.append(entry.by)
            else:
                commands.append(accepted)
        truths = tuple(map(self.truth, jobs)) if self.truth else ()
        return Intake(tuple(jobs), tuple(commands), truths, tuple(submitters))

    def _time_of(self, entry: Entry) -> float:
        return self.now() - (time.time() - entry.accepted_at) * self.speed

    def _convert(
        self,
        entry: Entry,
        at: float,
        terms: Mapping[str, TenantTerms],
        nodes: Sequence[NewNode],
    ) -> JobSpec | Command:
        """Convert an entry to a job or a command; if it fails a check, to a refusal."""
        job, image = entry.job and replace(entry.job, arrival_seconds=at), ""
        try:
            if job:
                self.check(job, terms.get(job.tenant))
                return job
            self.check_order(entry.kind, entry.target)
            if entry.kind == CommandKind.ADD:
                self.add(entry.node, nodes)
            if entry.kind == CommandKind.IMAGE:
                image = self.change_image(entry.target, entry.number)
        except Exception as error:  # one bad entry must not block the others
            message = str(error) if isinstance(error, ShockwaveError) else repr(error)
            # Records are UTF-8, which has no lone surrogates.
            reason = message.encode(errors="backslashreplace").decode()
            refused = CommandKind.REFUSED
            by, node = entry.by, entry.node
            return Command(entry.number, refused, -1, at, by=by, reason=reason, node=node)
        about = entry.number, CommandKind(entry.kind), entry.target, at, entry.value, entry.by
        command = Command(*about, reason=image, terms=entry.terms, node=entry.node)
        return self._place_window(command) if command.kind in CommandKind.windows() else command

    def _place_window(self, command: Command) -> Command:
        """Convert the times of a window to the run's clock."""
        begin = self.now() + (command.value - time.time()) * self.speed
        tenant, hours = command.terms.tenant, command.terms.window_hours * self.speed
        return replace(
            command, value=begin, terms=replace(NO_TERMS, tenant=tenant, window_hours=hours)
        )

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """Return the first waiting entry's time; quotas are ignored, as the clock runs anyway."""
        waiting = self.inbox.entries_after(taken.entries, most=1)
        return self._time_of(waiting[0]) if waiting else None

    def is_exhausted(self, taken: SourcePosition) -> bool:
        """Return False: a job may be submitted at any time."""
        return False


@dataclass(frozen=True)
class ReplaySource:
    """The recorded jobs and commands of a service as a `JobSource`.

    Attributes:
        clocks: Starts of the recorded rounds; idle rounds end at them.
    """

    trace: Trace
    clocks: tuple[float, ...]

    def until(self, clock_seconds: float, taken: SourcePosition) -> Intake:
        """See `JobSource.until`."""
        return self.trace.until(clock_seconds, taken)

    def idle_until(self, taken: SourcePosition, quotas: Iterable[float] = ()) -> float | None:
        """Return the recorded start of the next round."""
        following = bisect_right(self.clocks, taken.clock_seconds)
        return self.clocks[following] if following < len(self.clocks) else None

    def is_exhausted(self, taken: SourcePosition) -> bool:
        """See `JobSource.is_exhausted`."""
        return False
