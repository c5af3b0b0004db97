"""Queries on recorded runs: figures, explanations, forks, replay, audit and reports."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shockwave.progress import Progress, ignore_progress, watch_jobs
from warehouse import DEFAULT_WAREHOUSE

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from flows.explain.answer import Answer
    from flows.explain.whatif import Change, Outcome
    from tasks.replay import Comparison
    from warehouse.store.audit import Audit

OLDEST_FIRST = (
    "SELECT s.* FROM run_summary AS s JOIN runs AS r USING (run) ORDER BY r.created_at, run"
)


def find_warehouse(folder: str | Path | None) -> Path:
    """Return the folder; by default that in `SHOCKWAVE_WAREHOUSE`, else `var/warehouse`."""
    return Path(folder or os.environ.get("SHOCKWAVE_WAREHOUSE") or DEFAULT_WAREHOUSE)


def find_id(run: str, folder: Path) -> str:
    """Return the id of a run, given its id or name."""
    from warehouse.store.labelling import find_run

    return find_run(folder, run)


@dataclass(frozen=True)
class Warehouse:
    """The records of all runs, read only.

    Attributes:
        folder: The warehouse; see `find_warehouse`.
    """

    folder: str | Path | None = None

    @property
    def path(self) -> Path:
        """Folder of the warehouse."""
        return find_warehouse(self.folder)

    def runs(self, *runs: str) -> "pd.DataFrame":
        """Return the headline figures of runs, one row per run: the view `run_summary`.

        Args:
            runs: Ids or names, in the order of the rows; by default all runs, oldest first.

        Raises:
            InputError: There is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        table = self.sql(OLDEST_FIRST, *runs)
        return table.set_index("run").loc[self._ids(runs)].reset_index() if runs else table

    def jobs(self, *runs: str) -> "pd.DataFrame":
        """Return the outcomes of jobs, one row per job: the view `job_outcomes`.

        Args:
            runs: Ids or names of their runs; by default all.

        Raises:
            InputError: There is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        return self.sql("FROM job_outcomes ORDER BY run, job_id", *runs)

    def sql(self, query: str, *runs: str) -> "pd.DataFrame":
        """Return the result of a SELECT over the views as a pandas data frame.

        Args:
            query: The SELECT.
            runs: Runs that the views contain; by default all. Naming a few runs is much faster.

        Raises:
            InputError: The query is wrong, there is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        from warehouse.analytics.questions import Analytics

        return Analytics(self.path).frame(query, self._ids(runs) or None)

    def arrow(self, query: str, *runs: str) -> "pa.Table":
        """Return the result of a SELECT as an Arrow table; otherwise like `sql`."""
        from warehouse.analytics.questions import Analytics

        return Analytics(self.path).table(query, self._ids(runs) or None)

    def _ids(self, runs: Sequence[str]) -> list[str]:
        return [find_id(run, self.path) for run in runs]


def why(
    job: int,
    run: str | None = None,
    round: int | None = None,
    *,
    warehouse: str | Path | None = None,
    progress: Progress = ignore_progress,
) -> "Answer":
    """Explain why a job runs, waits or was preempted in a round; `str(answer)` is plain text.

    Args:
        job: The job's id.
        run: Id or name of its run; by default the newest run.
        round: The round; by default the last in which the job was active.
        warehouse: See `find_warehouse`.
        progress: Receives the number of simulated futures of the queue, and their total.

    Raises:
        ShockwaveError: There is no such run, job or round, or the records are damaged.
    """
    from flows.explain.why import why as explain

    folder = find_warehouse(warehouse)
    found = None if run is None else find_id(run, folder)
    return explain(job, folder, found, round, progress)


def whatif(
    run: str,
    round: int,
    change: "Change",
    *,
    keep: str | Path | None = None,
    warehouse: str | Path | None = None,
    progress: Progress = ignore_progress,
) -> "Outcome":
    """Fork a run at a round, change something, run the fork forward, and compare.

    Args:
        run: Id or name of the run.
        round: The first round to decide anew.
        change: The change from that round on.
        keep: A new folder for a warehouse with the fork; by default the fork is deleted.
        warehouse: See `find_warehouse`.
        progress: Receives the number of ended jobs, and of all jobs, of each fork.

    Raises:
        ShockwaveError: There is no such run, round or job, or the change is invalid.
    """
    from flows.explain.whatif import whatif as fork

    folder, into = find_warehouse(warehouse), None if keep is None else Path(keep)
    watch = watch_jobs(progress)
    return fork(find_id(run, folder), folder, round, change, into, watch=watch)


def replay(
    run: str, *, warehouse: str | Path | None = None, progress: Progress = ignore_progress
) -> "Comparison":
    """Predict and solve a run's recorded rounds again; `differences` is empty if all agree.

    Args:
        run: Id or name of the run.
        warehouse: See `find_warehouse`.
        progress: Receives the number of replayed rounds, and of all rounds.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    from flows.explain.replay import replay as decide_again

    folder = find_warehouse(warehouse)
    return decide_again(find_id(run, folder), folder, progress=progress)


def audit(run: str, *, warehouse: str | Path | None = None) -> "Audit":
    """Verify the records of a run, given by id or name; `findings` is empty if they are intact.

    Raises:
        InputError: There is no such run.
    """
    from warehouse.store.audit import audit as verify

    folder = find_warehouse(warehouse)
    return verify(folder, find_id(run, folder))


def report(
    name: str,
    out: str | Path | None = None,
    *,
    title: str = "",
    against: str | None = None,
    warehouse: str | Path | None = None,
) -> Path:
    """Write a self-contained HTML page about runs; return its path.

    Args:
        name: A run, runs separated by commas, or a campaign.
        out: The file, or its folder; by default `reports/` of the warehouse. An earlier page is
            replaced.
        title: Heading of the page.
        against: The baseline policy; by default the first.
        warehouse: See `find_warehouse`.

    Raises:
        InputError: There is no such run or policy, the file cannot be written or exists and is not
            a report, or the extra `report` is missing.
    """
    from flows.runs.extras import require

    require("report", "report")
    from warehouse.analytics.questions import Analytics
    from warehouse.report import page_path, write_report

    folder = find_warehouse(warehouse)
    path = page_path(Path(out) if out else None, folder, name)
    return write_report(Analytics(folder), name, path, title or f"Shockwave: {name}", against)


def figures(
    name: str,
    folder: str | Path,
    *,
    inches: float = 3.3,
    only: Sequence[str] = (),
    against: str | None = None,
    warehouse: str | Path | None = None,
    progress: Progress = ignore_progress,
) -> list[Path]:
    """Write a report's figures as PDFs for a paper, with small type and embedded fonts.

    Args:
        name: A run, runs separated by commas, or a campaign.
        folder: Folder for the files: `KEY.pdf` for each figure; `KEY-WORKLOAD.pdf` for each of
            several workloads; `KEY-CHOICE.pdf` for each choice after the first.
        inches: Width: 3.3 for one column, 7 for a page of two columns.
        only: Prefixes of the keys to write, such as `comparison`; by default all.
        against: The baseline policy; by default the first.
        warehouse: See `find_warehouse`.
        progress: Receives the number of figures written, and of all figures.

    Returns:
        The paths of the files.

    Raises:
        InputError: There is no such run, figure or policy, the folder cannot be written, the
            width is out of bounds, or the extra `report` is missing.
    """
    from flows.runs.extras import require

    require("report", "figures")
    from warehouse.analytics.questions import Analytics
    from warehouse.report import read_report
    from warehouse.report.paper import select_figures, write_pdfs

    drawn = read_report(Analytics(find_warehouse(warehouse)), name, against).figures
    chosen = select_figures(drawn, only)
    written = list[Path]()
    for number, figure in enumerate(chosen, start=1):
        written += write_pdfs([figure], Path(folder), inches)
        progress(number, len(chosen))
    return written
