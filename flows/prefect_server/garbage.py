"""Garbage collection during rounds, and in servers: a higher threshold."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARER = 100
"""Factor on the threshold of collections. An engineering choice."""

_collecting = Lock()
_rarely: list[tuple[int, int, int]] = []
"""Thresholds saved by each active context; the first is the process's default."""


@contextmanager
def collect_rarely() -> Iterator[None]:
    """Run the cyclic garbage collector less often within the context.

    A round allocates and frees tens of thousands of small objects, none in a cycle; at the
    default threshold, collections double the time of a round. With runs in several threads,
    the first context sets the threshold and the last context restores it.
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
    """Disable the collector while a server starts within the context, and run it rarely afterwards.

    A server's imports live until its end: repeated collections of them take a fifth of its start.
    Later, a collection of all generations would stop all requests for some tenths of a second, or
    for more than a second on a busy machine: objects of the start are never collected.
    """
    gc.disable()
    try:
        yield
    finally:
        usual, *others = gc.get_threshold()
        gc.set_threshold(RARER * usual, *others)
        gc.freeze()
        gc.enable()
