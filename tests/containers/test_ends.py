"""Exits of containers as events."""

import pytest

from containers.leasing.ends import interpret_exit
from containers.leasing.engine import Exit
from containers.runtime import EventKind


@pytest.mark.parametrize("code", range(256))
def test_no_exit_code_makes_a_job_lost(code: int) -> None:
    for out_of_memory in (False, True):
        kind, reason = interpret_exit(
            Exit(code, out_of_memory, "its last words", 2**30), "container"
        )
        assert kind is not EventKind.LOST
        assert reason or kind is EventKind.FINISHED
        assert (kind is EventKind.STOPPED) == (code in (74, 75, 137, 143) and not out_of_memory)
    assert interpret_exit(None, "container")[0] is EventKind.LOST
