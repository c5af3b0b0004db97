"""The commands of a service by name, for its local and its remote API."""

from abc import ABC, abstractmethod
from typing import Self

from flows.api.rows import Accepted
from tasks.commands import CommandKind


class NamedCommands(ABC):
    """Commands about jobs and nodes; each is durable once its method returns.

    Jobs are given by id or name; nodes by index or, on Docker hosts, by name. A repetition with the
    same idempotency key has no further effect.
    """

    @abstractmethod
    def send_command(
        self, kind: CommandKind, target: str, *, value: float = 0.0, key: str = ""
    ) -> Accepted:
        """Send a command to a job or a node; `value` is the new budget for `CommandKind.BUDGET`.

        Raises:
            InputError: There is no such job or node, or the caller may not command it.
            WarehouseBusy: The service does not answer; a later try may succeed.
        """

    def cancel(self, job: str, *, key: str = "") -> Accepted:
        """Cancel a job: it ends with the next round."""
        return self.send_command(CommandKind.CANCEL, job, key=key)

    def hold(self, job: str, *, key: str = "") -> Accepted:
        """Put a job on hold: it gets no GPUs until it is released."""
        return self.send_command(CommandKind.HOLD, job, key=key)

    def release(self, job: str, *, key: str = "") -> Accepted:
        """Release a job that is on hold."""
        return self.send_command(CommandKind.RELEASE, job, key=key)

    def requeue(self, job: str, *, key: str = "") -> Accepted:
        """Preempt a job for a round and reset its back-off."""
        return self.send_command(CommandKind.REQUEUE, job, key=key)

    def set_budget(self, job: str, value: float, *, key: str = "") -> Accepted:
        """Set the budget of a job in the market."""
        return self.send_command(CommandKind.BUDGET, job, value=value, key=key)

    def drain(self, node: str, *, key: str = "") -> Accepted:
        """Take a node out of service: jobs on it are preempted."""
        return self.send_command(CommandKind.DRAIN, node, key=key)

    def cordon(self, node: str, *, key: str = "") -> Accepted:
        """Start no more jobs on a node; those on it continue."""
        return self.send_command(CommandKind.CORDON, node, key=key)

    def uncordon(self, node: str, *, key: str = "") -> Accepted:
        """Return a drained or cordoned node to service."""
        return self.send_command(CommandKind.UNCORDON, node, key=key)

    def remove(self, node: str, *, key: str = "") -> Accepted:
        """Remove a node from the cluster for good: jobs on it are preempted."""
        return self.send_command(CommandKind.REMOVE, node, key=key)

    def image(self, node: str, *, key: str = "") -> Accepted:
        """Give later jobs on a node its present image of the cluster file."""
        return self.send_command(CommandKind.IMAGE, node, key=key)

    @abstractmethod
    def close(self) -> None:
        """Close all connections."""

    def __enter__(self) -> Self:
        """Return the API itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Close all connections."""
        self.close()
