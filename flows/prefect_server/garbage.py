"""Rarer garbage collection during rounds and in servers."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARER = 100
"""Factor on the collector's threshold. An engineering choice."""

_collecting = Lock()
_rarely: list[tuple[int, int, int]] = []
"""Thresholds saved by each active context; the first is the process's default."""


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Run the cyclic garbage collector less often within the context.

    A round allocates and frees tens of thousands of small objects, none in a cycle. At the default
    threshold, collections double the time of a round. If several threads run rounds, the first
    context sets the threshold and the last context restores it.
    """
    with _collecting:
        _rarely.append(gc.get_threshold())
        if len(_rarely) == 1:
            gc.set_threshold(RARER * _rarely[0][0], *_rarely[0][1:])
            gc.freeze()  # the workload lives until the end
    try:
        yield
    finally:
        with _collecting:
            usual = _rarely.pop()
            if not _rarely:
                gc.unfreeze()
                gc.set_threshold(*usual)


@contextmanager
def start_collecting_rarely() -> Iterator[None]:
    """Disable the collector while a server starts within the context; then run it rarely.

    A server's imports live until it ends, and collections of them would take a fifth of its start.
    They are frozen afterwards: a collection of all generations would stop all requests for tenths
    of a second, or for over a second on a busy machine.
    """
    gc.disable()
    try:
        yield
    finally:
        usual, *others = gc.get_threshold()
        gc.set_threshold(RARER * usual, *others)
        gc.freeze()
        gc.enable()
