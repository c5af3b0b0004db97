"""Exit codes, as events of leases.

An out-of-memory kill has the same exit code as any SIGKILL. Docker tells them apart by the cgroup's
OOM event. A busy host can lose that event if the cgroup is gone before Docker reads it; the
job is then reported as stopped.

A job chooses its exit code, so no code counts as the host's fault (`EventKind.LOST`).
"""

from containers.leasing.engine import KILLED, STOPPED, TERMINATED, Exit
from containers.runtime import EventKind

TRAINED, STORAGE = 0, 74
"""Exit codes: all epochs trained, cannot write (EX_IOERR). The trainer uses both, and `STOPPED`
(docs/images.md)."""

WAS_KILLED = f"was killed from outside, or by its host for want of memory (exit code {KILLED})"


def interpret_exit(end: Exit | None, program: str) -> tuple[EventKind, str]:
    """Interpret an exit as a kind of event and a reason in words; None if it is unknown.

    `program` is what the engine calls a lease's program.
    """
    if end is None:
        return EventKind.LOST, f"its {program} vanished"
    if end.by_engine:
        return EventKind.LOST, end.by_engine
    said = f": {end.last_words}" if end.last_words else ""
    if end.code == TRAINED:
        return EventKind.FINISHED, ""
    if end.out_of_memory:
        limit = end.memory_bytes / 2**30
        return EventKind.CRASHED, f"out of memory: its limit is {limit:.3g} GiB"
    if end.code == KILLED:
        return EventKind.STOPPED, WAS_KILLED
    if end.code in (STOPPED, TERMINATED):
        return EventKind.STOPPED, f"stopped without being asked to from here (exit code {end.code})"
    if end.code == STORAGE:
        return EventKind.STOPPED, f"could not write to its folder{said}"
    return EventKind.CRASHED, f"exited with code {end.code}{said}"
