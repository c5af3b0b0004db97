"""The end of a process that native modules and Prefect's threads outlive."""

import os


def silence_teardown() -> None:
    """Drop what native modules print while the interpreter is taken down.

    Prefect's threads outlive it, and DuckDB's bindings then report a page of leaks.
    """
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
