"""Commands to a service, and the standing orders that they add up to."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from solver.inventory import Pool

HOUR = 3600.0
"""Seconds per hour: terms of tenants are in hours, clocks in seconds."""


class CommandKind(StrEnum):
    """What a command requests. Its target is a job or a node."""

    CANCEL = "cancel"
    """The job gets no more GPUs, and is withdrawn at the next round boundary."""
    HOLD = "hold"
    """The job gets no GPUs until it is released."""
    RELEASE = "release"
    """The job is no longer on hold."""
    REQUEUE = "requeue"
    """The job gets no GPUs in the coming round, then waits in line; its back-off is reset."""
    BUDGET = "budget"
    """The command's value becomes the job's budget in the market."""
    DRAIN = "drain"
    """The node is out of service; jobs on it are preempted, with their checkpoints."""
    CORDON = "cordon"
    """Jobs on the node continue, and no other job starts there."""
    UNCORDON = "uncordon"
    """A drained or cordoned node is in service again."""
    ADD = "add"
    """The command's node joins the cluster, with the next free index."""
    REMOVE = "remove"
    """The node leaves the cluster for good; jobs on it are preempted, with their checkpoints."""
    IMAGE = "image"
    """Jobs accepted later get the node's image of the cluster file; earlier ones keep theirs."""
    MAINTAIN = "maintain"
    """For a time, no job starts on the node, and jobs there that can be preempted are."""
    RESERVE = "reserve"
    """For a time, only jobs of a tenant start on the node, and others there are preempted."""
    REOPEN = "reopen"
    """A window of the two kinds above ends, or does not begin; the target is its number."""
    SHELL = "shell"
    """Somebody opened a shell in a container of the job; nothing else changes."""
    TENANT = "tenant"
    """The command's terms become those of the tenant."""
    PAUSE = "pause"
    """No round runs, except by hand, and running jobs continue; recorded by the next round."""
    RESUME = "resume"
    """Rounds run again."""
    REFUSED = "refused"
    """A submission or a node was refused; the command has the reason."""

    @property
    def of_node(self) -> bool:
        """Whether the target is a node of the cluster."""
        return self in (
            CommandKind.DRAIN,
            CommandKind.CORDON,
            CommandKind.UNCORDON,
            CommandKind.REMOVE,
            CommandKind.IMAGE,
            *CommandKind.windows(),
        )

    @staticmethod
    def windows() -> tuple["CommandKind", ...]:
        """The kinds that set a node aside for a time."""
        return CommandKind.MAINTAIN, CommandKind.RESERVE


@dataclass(frozen=True, slots=True)
class TenantTerms:
    """Terms of a tenant, whose name is empty in commands of other kinds.

    Attributes:
        budget: Factor on the budgets of its jobs in the market.
        gpu_hours: GPU-hours that its jobs may hold in a window; 0 for no limit.
        rollover: Most unused GPU-hours carried over into the next window.
        images: Patterns of the images that its jobs may name; empty for any image.
    """

    tenant: str = ""
    budget: float = 1.0
    gpu_hours: float = 0.0
    window_hours: float = 24.0
    rollover: float = 0.0
    images: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The terms, in words."""
        said = [f"tenant {self.tenant}: budget {self.budget:g}"]
        if self.gpu_hours:
            said.append(f"{self.gpu_hours:g} GPU-hours in {self.window_hours:g} h")
            said += [f"{self.rollover:g} carried over"] if self.rollover else []
        return ", ".join([*said, *([f"images {' '.join(self.images)}"] if self.images else [])])


NO_TERMS = TenantTerms()


@dataclass(frozen=True, slots=True)
class NewNode:
    """A node that is added.

    Attributes:
        name: Its name in the cluster file; empty on a virtual cluster, and in other commands.
        gpu_type: Type of its GPUs; empty for the only type of a cluster.
        price: Price of a GPU-hour; 0 without a price.
    """

    name: str = ""
    gpu_type: str = ""
    gpus: int = 0
    price: float = 0.0

    @property
    def pool(self) -> Pool:
        """The node as a pool of its own.

        Raises:
            InputError: The node is invalid.
        """
        return Pool(self.gpu_type, self.gpus, max(self.gpus, 1), self.price)

    @property
    def words(self) -> str:
        """The node, in words."""
        return f"node {self.name}".strip() + f" of {self.gpus} GPUs {self.gpu_type}".rstrip()


NO_NODE = NewNode()


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a round took it in.

    A command about a job that is not active has no effect: the job may just have ended.

    Attributes:
        number: Its entry in the inbox, from 1.
        target: Job id, index of a node, or number of a window; -1 if it is about a tenant, a new
            node or the service.
        at_seconds: When it was accepted, on the run's clock.
        value: New budget; start of a window, on the run's clock.
        terms: New terms of a tenant; for a window, whose it is and its hours on the run's clock.
        reason: Reason for a refusal, in words; the id of a node's new image.
    """

    number: int
    kind: CommandKind
    target: int
    at_seconds: float
    value: float = 0.0
    by: str = ""
    reason: str = ""
    terms: TenantTerms = NO_TERMS
    node: NewNode = NO_NODE

    @property
    def job(self) -> int | None:
        """The job of the command; None if it is about none."""
        if self.kind is CommandKind.REFUSED:
            return self.number if self.node == NO_NODE else None
        about_none = self.kind.of_node or self.kind is CommandKind.REOPEN or self.target < 0
        return None if about_none else self.target

    @property
    def words(self) -> str:
        """Its contents without its kind and job, in words."""
        said, why = "", self.reason or (f"by {self.by}" if self.by else "")
        if self.kind is CommandKind.TENANT:
            said = self.terms.words
        elif self.kind.of_node:
            said = f"node {self.target}"
            if window := self.window:
                to = f" for {window.tenant}" if window.tenant else ""
                said += f"{to} from {window.begin_seconds:,.0f} to {window.end_seconds:,.0f} s"
        elif self.kind is CommandKind.REOPEN:
            said = f"window {self.target}"
        elif self.node != NO_NODE:
            said = self.node.words + ":" * bool(self.reason)
        elif self.kind is CommandKind.BUDGET:
            said = f"{self.value:g}"
        return f"{said} {why}".strip()

    @property
    def window(self) -> "Window | None":
        """The window that the command makes; None if it makes none."""
        if self.kind not in CommandKind.windows():
            return None
        end = self.value + self.terms.window_hours * HOUR
        return Window(self.number, self.target, self.value, end, self.terms.tenant)


@dataclass(frozen=True, slots=True)
class Window:
    """A time for which a node is set aside, on the run's clock.

    Attributes:
        number: Number of its command.
        tenant: Whose jobs may start there; empty for maintenance.
    """

    number: int
    node: int
    begin_seconds: float
    end_seconds: float
    tenant: str = ""

    @property
    def words(self) -> str:
        """What the node is set aside for, and until when, in words."""
        what = "reserved" if self.tenant else "under maintenance"
        return f"{what} until {self.end_seconds:,.0f} s"

    def is_open(self, clock_seconds: float) -> bool:
        """Return whether the node is set aside at a time."""
        return self.begin_seconds <= clock_seconds < self.end_seconds


@dataclass(frozen=True, slots=True)
class NodeImage:
    """A new default image of a node, by id, for jobs whose ids are above `after`."""

    node: int
    after: int
    image: str


@dataclass(frozen=True, slots=True)
class Orders:
    """Standing orders of a run: a fold over its commands.

    Attributes:
        cancelled: Active jobs to be withdrawn at the next round boundary.
        images: New images of nodes, in order.
        cancelled_by: Who cancelled them, by job id, as far as their commands say.
        requeued: Active jobs that get no GPUs in the coming round.
        cordoned: Nodes on which no job starts.
        added: Nodes added to those of the header, each as a pool of its own.
        removed: Nodes that left the cluster.
        windows: Times for which nodes are set aside; those that are over may be left out.
    """

    held: frozenset[int] = frozenset()
    cancelled: frozenset[int] = frozenset()
    requeued: frozenset[int] = frozenset()
    drained: frozenset[int] = frozenset()
    cordoned: frozenset[int] = frozenset()
    added: tuple[Pool, ...] = ()
    removed: frozenset[int] = frozenset()
    images: tuple[NodeImage, ...] = ()
    cancelled_by: Mapping[int, str] = field(default_factory=dict)
    windows: tuple[Window, ...] = ()

    @property
    def not_running(self) -> frozenset[int]:
        """Jobs that get no GPUs in the coming round."""
        return self.held | self.cancelled | self.requeued

    def may_run(self, job_id: int) -> bool:
        """Return whether a job may get GPUs in the coming round."""
        kept = job_id in self.held or job_id in self.cancelled or job_id in self.requeued
        return not kept

    def after(self, active: Collection[int], commands: Sequence[Command]) -> "Orders":
        """Return the orders after further commands, in order; only active jobs keep theirs."""
        if not commands and self == _NONE:
            return self
        held, cancelled, requeued = {*self.held}, {*self.cancelled}, set[int]()
        by = {**self.cancelled_by}
        for command in commands:
            match command.kind:
                case CommandKind.CANCEL:
                    cancelled.add(command.target)
                    if command.by:
                        by.setdefault(command.target, command.by)
                case CommandKind.HOLD:
                    held.add(command.target)
                case CommandKind.RELEASE:
                    held.discard(command.target)
                case CommandKind.REQUEUE:
                    requeued.add(command.target)
        return Orders(
            held=frozenset(held.intersection(active)),
            cancelled=frozenset(cancelled.intersection(active)),
            requeued=frozenset(requeued.intersection(active)),
            drained=_marked(self.drained, CommandKind.DRAIN, commands),
            cordoned=_marked(self.cordoned, CommandKind.CORDON, commands),
            added=(*self.added, *(c.node.pool for c in commands if c.kind is CommandKind.ADD)),
            removed=self.removed.union(
                command.target for command in commands if command.kind is CommandKind.REMOVE
            ),
            images=(
                *self.images,
                *(
                    NodeImage(c.target, c.number, c.reason)
                    for c in commands
                    if c.kind is CommandKind.IMAGE
                ),
            ),
            cancelled_by={job: by[job] for job in by if job in active},
            windows=tuple(_list_windows(self.windows, commands)),
        )

    def maintained(self, clock_seconds: float) -> frozenset[int]:
        """Return the nodes under maintenance at a time."""
        return frozenset(w.node for w in self.windows if not w.tenant and w.is_open(clock_seconds))

    def closed_to(self, tenant: str, clock_seconds: float) -> frozenset[int]:
        """Return the nodes in service on which no job of a tenant starts at a time."""
        if not self.windows:
            return self.cordoned
        aside = (w for w in self.windows if w.tenant != tenant or not w.tenant)
        return self.cordoned.union(w.node for w in aside if w.is_open(clock_seconds))

    @property
    def out_of_service(self) -> frozenset[int]:
        """Nodes that are drained or removed."""
        return self.drained | self.removed


def _marked(nodes: Collection[int], by: CommandKind, commands: Sequence[Command]) -> frozenset[int]:
    """Return the nodes that a kind of command has marked and no `UNCORDON` has cleared since."""
    marked = {*nodes}
    for command in commands:
        if command.kind is by:
            marked.add(command.target)
        elif command.kind is CommandKind.UNCORDON:
            marked.discard(command.target)
    return frozenset(marked)


def _list_windows(windows: Sequence[Window], commands: Sequence[Command]) -> Iterator[Window]:
    """Yield the windows after further commands, without those that are over."""
    now = max((command.at_seconds for command in commands), default=0.0)
    ended = {c.target for c in commands if c.kind is CommandKind.REOPEN}
    for window in (*windows, *(found for c in commands if (found := c.window))):
        if window.number not in ended and window.end_seconds > now:
            yield window


_NONE = Orders()
