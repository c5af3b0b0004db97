"""The end of a process with native modules and Prefect's threads."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress


def silence_teardown() -> None:
    """Discard the output of native modules when the interpreter exits.

    Prefect's threads outlive the interpreter, and DuckDB's bindings then report leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def end_process(code: Sequence[int]) -> None:
    """End this process at once, after all other exit handlers; `code[-1]` is its exit code.

    After Prefect, the interpreter's teardown takes a second, more on a busy machine, and native
    modules report leaks.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # the reader has closed it
            stream.flush()
    os._exit(code[-1])
