"""Questions to a warehouse: figures, explanations, forks, replay, audit and reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from flows.cli.progress import progress, working
from shockwave.folder import folder_of, id_of

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


@dataclass(frozen=True)
class Warehouse:
    """The records of all runs, to read.

    Attributes:
        folder: The folder; by default `SHOCKWAVE_WAREHOUSE`, or else `var/warehouse`.
    """

    folder: str | Path | None = None

    @property
    def path(self) -> Path:
        """The folder."""
        return folder_of(self.folder)

    def runs(self, *runs: str) -> "pd.DataFrame":
        """The headline figures of runs, a row a run: the view `run_summary`.

        Args:
            runs: Their ids or names, in whose order the rows are; all by default, the oldest first.

        Raises:
            InputError: There is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        table = self.sql(OLDEST_FIRST, *runs)
        return table.set_index("run").loc[self._ids(runs)].reset_index() if runs else table

    def jobs(self, *runs: str) -> "pd.DataFrame":
        """How jobs fared, a row a job: the view `job_outcomes`.

        Args:
            runs: Ids or names of their runs; all by default.

        Raises:
            InputError: There is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        return self.sql("FROM job_outcomes ORDER BY run, job_id", *runs)

    def sql(self, query: str, *runs: str) -> "pd.DataFrame":
        """The result of a SELECT over the views, as a pandas data frame.

        Args:
            query: The query.
            runs: The runs that the views have; all by default. A few are read much faster.

        Raises:
            InputError: The query is wrong, there is no such run, or no warehouse.
            WarehouseError: A file is damaged.
        """
        from warehouse.analytics.questions import Analytics

        return Analytics(self.path).frame(query, self._ids(runs) or None)

    def arrow(self, query: str, *runs: str) -> "pa.Table":
        """The result of a SELECT over the views, as an Arrow table; otherwise as `sql`."""
        from warehouse.analytics.questions import Analytics

        return Analytics(self.path).table(query, self._ids(runs) or None)

    def _ids(self, runs: Sequence[str]) -> list[str]:
        return [id_of(run, self.path) for run in runs]


@working("why")
def why(
    job: int,
    run: str | None = None,
    round: int | None = None,
    *,
    warehouse: str | Path | None = None,
) -> "Answer":
    """Explain why a job runs, waits or was preempted in a round; `str` of it has the sentences.

    Args:
        job: The job's id.
        run: Its id or name; by default the newest.
        round: The round; by default the last in which the job was active.
        warehouse: Folder that keeps the records; see `folder_of`.

    Raises:
        ShockwaveError: There is no such run, job or round, or the records are damaged.
    """
    from flows.explain.why import why as explain

    folder = folder_of(warehouse)
    show = progress().counted("playing the queue forward", "plays")
    return explain(job, folder, None if run is None else id_of(run, folder), round, show)


@working("whatif")
def whatif(
    run: str,
    round: int,
    change: "Change",
    *,
    keep: str | Path | None = None,
    warehouse: str | Path | None = None,
) -> "Outcome":
    """Fork a run at a round, change something, run it forward, and compare.

    Args:
        run: Its id or name.
        round: The first round that is decided anew.
        change: What is changed from that round on.
        keep: A new folder for a warehouse with the fork; by default the fork is deleted.
        warehouse: Folder that keeps the records; see `folder_of`.

    Raises:
        ShockwaveError: There is no such run, round or job, or the change is invalid.
    """
    from flows.explain.whatif import whatif as fork

    folder, into = folder_of(warehouse), None if keep is None else Path(keep)
    return fork(id_of(run, folder), folder, round, change, into, watch=progress().run)


@working("replay")
def replay(run: str, *, warehouse: str | Path | None = None) -> "Comparison":
    """Predict and solve the recorded rounds of a run again; `differences` is empty if all agree.

    Args:
        run: Its id or name.
        warehouse: Folder that keeps the records; see `folder_of`.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    from flows.explain.replay import replay as decide_again

    folder = folder_of(warehouse)
    show = progress().counted("replaying", "rounds")
    return decide_again(id_of(run, folder), folder, progress=show)


def audit(run: str, *, warehouse: str | Path | None = None) -> "Audit":
    """Verify that the records of a run are whole; `findings` is empty if they are.

    Args:
        run: Its id or name.
        warehouse: Folder that keeps the records; see `folder_of`.

    Raises:
        InputError: There is no such run.
    """
    from warehouse.store.audit import audit as verify

    folder = folder_of(warehouse)
    return verify(folder, id_of(run, folder))


@working("report")
def report(
    name: str,
    out: str | Path | None = None,
    *,
    title: str = "",
    against: str | None = None,
    warehouse: str | Path | None = None,
) -> Path:
    """Write one self-contained HTML page about runs.

    Args:
        name: A run, runs separated by commas, or a campaign.
        out: The file, or its folder; by default `reports/` of the warehouse. An earlier page is
            replaced.
        title: Its heading.
        against: The policy that paired differences are taken from; by default the first.
        warehouse: Folder that keeps the records; see `folder_of`.

    Returns:
        The file.

    Raises:
        InputError: There is no such run or policy, the file cannot be written or is there and no
            report, or the extra `report` is missing.
    """
    from flows.runs.extras import require

    require("report", "report")
    from warehouse.analytics.questions import Analytics
    from warehouse.report import page_path, write_report

    folder = folder_of(warehouse)
    path = page_path(Path(out) if out else None, folder, name)
    return write_report(Analytics(folder), name, path, title or f"Shockwave: {name}", against)


@working("figures")
def figures(
    name: str,
    folder: str | Path,
    *,
    inches: float = 3.3,
    only: Sequence[str] = (),
    against: str | None = None,
    warehouse: str | Path | None = None,
) -> list[Path]:
    """Write the figures of a report for a paper: PDF, so wide, small type, fonts embedded.

    Args:
        name: A run, runs separated by commas, or a campaign.
        folder: The folder; each figure becomes `KEY.pdf`; of several workloads each has its own,
            `KEY-WORKLOAD.pdf`, and of other choices those after the first, `KEY-CHOICE.pdf`.
        inches: Width: 3.3 for a column, 7 for a page of two columns.
        only: Beginnings of the keys of those to write, such as `comparison`; all by default.
        against: See `report`.
        warehouse: Folder that keeps the records; see `folder_of`.

    Returns:
        The files.

    Raises:
        InputError: There is no such run, figure or policy, the folder cannot be written, the
            width is out of bounds, or the extra `report` is missing.
    """
    from flows.runs.extras import require

    require("report", "figures")
    from predictor.errors import InputError, likely
    from warehouse.analytics.questions import Analytics
    from warehouse.report import report_of
    from warehouse.report.paper import write_pdfs

    shown = progress()
    shown.stage(f"reading {name}")
    drawn = report_of(Analytics(folder_of(warehouse)), name, against).figures
    for begin in only:
        if not any(figure.key.startswith(begin) for figure in drawn):
            keys = sorted(figure.key for figure in drawn)
            remedy = f"{likely(begin, keys)}there are {', '.join(keys)}"
            raise InputError("only", f"no figure of {name!r} begins with {begin!r}", remedy)
    chosen = [figure for figure in drawn if figure.key.startswith(tuple(only) or "")]
    show, written = shown.counted("drawing", "figures"), list[Path]()
    for number, figure in enumerate(chosen):
        show(number, len(chosen))
        written += write_pdfs([figure], Path(folder), inches)
    return written
