"""Python's garbage collector while rounds run."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

_collecting = Lock()
_rarely: list[tuple[int, int, int]] = []
"""Thresholds before each run under way; the first is the usual one."""


@contextmanager
def rare_collections() -> Iterator[None]:
    """Look for reference cycles a hundred times less often.

    A round makes and drops tens of thousands of small objects, none in a cycle; looking
    through them all again and again takes as long as the rest of the round. Of runs in
    several threads the first to start sets it and the last to end takes it back.
    """
    with _collecting:
        _rarely.append(gc.get_threshold())
        if len(_rarely) == 1:
            gc.set_threshold(100 * _rarely[0][0], *_rarely[0][1:])
            gc.freeze()  # the workload stays to the end
    try:
        yield
    finally:
        with _collecting:
            usual = _rarely.pop()
            if not _rarely:
                gc.unfreeze()
                gc.set_threshold(*usual)
