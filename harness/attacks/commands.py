"""The command line in forked processes, which need not import it again."""

import os
import re
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

SECONDS = 10
BUSY_SECONDS = 120
"""Wall-clock timeout on a busy machine; processor time is bounded by `SECONDS` all the same."""
MEMORY_BYTES = 8 * 2**30
CRASHED = 70
"""Exit code of an uncaught exception."""

PROGRESS = re.compile(r" *\d+ s  ")
"""Beginning of progress lines."""

Arguments = Sequence[object]


class Ended(NamedTuple):
    """How a command ended; a negative code is a signal."""

    code: int
    err: str
    processor_seconds: float = 0.0

    @property
    def verdict(self) -> str:
        if self.code == -signal.SIGALRM or self.processor_seconds > SECONDS:
            return "hangs"
        if self.code in (0, 1) and "Traceback" not in self.err:
            return ("accepted", "found")[self.code]
        said = [line for line in self.err.splitlines() if not PROGRESS.match(line)]
        if self.code == 2 and len(said) == 1 and said[0].startswith("error: "):
            return "refused"
        return "tracebacks" if self.code in (CRASHED, 0, 1) else "others"


def isolated(home: Path) -> None:
    """Isolate the process: nothing of the user is read or written, and no server is started."""
    home.mkdir(parents=True)
    os.environ |= {
        "HOME": str(home),
        "PREFECT_HOME": str(home / "prefect"),
        "PREFECT_API_URL": "http://127.0.0.1:9/api",  # no one answers there
        "COLUMNS": "100",
    }
    os.environ.pop("SHOCKWAVE_WAREHOUSE", None)


def warm() -> None:
    """Import what commands import; none of it starts threads."""
    import duckdb
    import pandas
    import pyarrow.parquet

    import flows.api.commands
    import flows.cli.app
    import flows.explain.whatif
    import flows.runs.cluster_file
    import flows.runs.live
    import flows.web.api
    import warehouse.analytics.marts
    import warehouse.report

    flows.cli.app.build_application()
    assert all((duckdb, pandas, pyarrow.parquet, warehouse.report))


def called(arguments: Arguments) -> int:
    """Run the command line in this process; its exit code."""
    from flows.cli import main as cli

    cli.end_process = lambda code: None
    sys.argv = ["shockwave", *(os.fsdecode(os.fsencode(fit(part))) for part in arguments)]
    try:
        cli.main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def fit(part: object) -> str:
    """An argument as the operating system hands it over: bytes that are no UTF-8 as surrogates."""
    return str(part).encode(errors="surrogatepass").decode(errors="surrogateescape")


def forked(act: Callable[[], int], place: Path, seconds: float) -> Ended:
    """Call a function in a forked process."""
    out, err = place.with_suffix(".out"), place.with_suffix(".err")
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        code = CRASHED
        try:
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, seconds)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
            for path, number in ((out, 1), (err, 2)):
                os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), number)
            code = act()
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status)
    return Ended(code, err.read_text(errors="replace"), used.ru_utime + used.ru_stime)
