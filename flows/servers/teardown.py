"""The end of a process with native modules and Prefect's threads."""

import os
import sys
from collections.abc import Sequence
from contextlib import suppress


def silence_teardown() -> None:
    """Discard the output of native modules at interpreter exit.

    Prefect's threads outlive the interpreter, and DuckDB's bindings then report leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)


def end_process(code: Sequence[int]) -> None:
    """End this process, when all else that is to be done at its exit is done.

    Tearing the interpreter down takes a second after Prefect, many on a busy machine, in which
    nothing is said; and native modules report leaks.

    Args:
        code: The exit code, which is known once this is called.
    """
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):  # whoever reads has closed it, and was told so
            stream.flush()
    os._exit(code[-1])
