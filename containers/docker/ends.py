"""What the end of a container means for the lease that it had.

A container that its kernel killed for want of memory exits like one that anybody killed.
Docker tells the two apart by an event from the container's cgroup, which is lost where the
cgroup is gone before a busy host has read it: such a job counts as lost, and is tried again.
"""

from containers.docker.daemon import Exit
from containers.docker.nodes import Nodes
from containers.runtime import EventKind

TRAINED, STORAGE, STOPPED, KILLED, TERMINATED = 0, 74, 75, 137, 143
"""Exit codes: all epochs trained, cannot write, stopped with a checkpoint, SIGKILL, SIGTERM."""

WAS_KILLED = f"was killed from outside, or by its host for want of memory (exit code {KILLED})"


def meaning(end: Exit | None, nodes: Nodes, gpus: int) -> tuple[EventKind, str]:
    """What a container's exit means for its lease.

    Args:
        end: How it ended; None if nobody tells.
        nodes: The cluster, with its limits.
        gpus: GPUs of the container.

    Returns:
        The kind of event, and the reason in words.
    """
    if end is None:
        return EventKind.LOST, "its container vanished"
    said = f": {end.last_words}" if end.last_words else ""
    if end.code == TRAINED:
        return EventKind.FINISHED, ""
    if end.out_of_memory:
        limit = gpus * nodes.limits.memory_bytes / 2**30
        return EventKind.CRASHED, f"out of memory: its limit is {limit:.3g} GiB"
    if end.code == KILLED:
        return EventKind.LOST, WAS_KILLED
    if end.code in (STOPPED, TERMINATED):
        return EventKind.LOST, f"stopped without being asked to from here (exit code {end.code})"
    if end.code == STORAGE:
        return EventKind.LOST, f"could not write to its folder{said}"
    return EventKind.CRASHED, f"exited with code {end.code}{said}"
