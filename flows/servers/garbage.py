"""Garbage collection during rounds, and in servers: a higher threshold."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

RARER = 100
"""Times that collections are rarer. An engineering choice."""

_collecting = Lock()
_rarely: list[tuple[int, int, int]] = []
"""Thresholds saved by each active context; the first is the process's default."""


@contextmanager
def rare_collections() -> Iterator[None]:
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
def collecting_rarely_from_now() -> Iterator[None]:
    """Make a server within the context: run it not at all meanwhile, and rarely afterwards.

    What a server imports lives until its end: to look through it again and again takes a fifth of
    its start. Later a collection of all generations would stop it for some tenths of a second, or
    for more than a second where others use the machine, and every request that comes meanwhile
    waits: what is there by then is never collected.
    """
    gc.disable()
    try:
        yield
    finally:
        usual, *others = gc.get_threshold()
        gc.set_threshold(RARER * usual, *others)
        gc.freeze()
        gc.enable()
