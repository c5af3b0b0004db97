"""Exits of containers as events."""

import pytest

from containers.docker.daemon import Exit
from containers.docker.ends import interpret_exit
from containers.docker.nodes import ContainerLimits
from containers.runtime import EventKind


@pytest.mark.parametrize("code", range(256))
def test_no_exit_code_makes_a_job_lost(code: int) -> None:
    for out_of_memory in (False, True):
        kind, reason = interpret_exit(
            Exit(code, out_of_memory, "its last words"), ContainerLimits(), 1
        )
        assert kind is not EventKind.LOST
        assert reason or kind is EventKind.FINISHED
        assert (kind is EventKind.STOPPED) == (code in (74, 75, 137, 143) and not out_of_memory)
    assert interpret_exit(None, ContainerLimits(), 1)[0] is EventKind.LOST
