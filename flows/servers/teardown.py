"""Teardown of a process with native modules and Prefect's threads."""

import os


def silence_teardown() -> None:
    """Discard the output of native modules at interpreter exit.

    Prefect's threads outlive the interpreter, and DuckDB's bindings then report leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
