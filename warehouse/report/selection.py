"""The runs of a report, and their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from predictor.errors import InputError, likely
from warehouse.analytics.questions import Analytics
from warehouse.report.jobs import DESCRIBED
from warehouse.store.campaigns import read_cells
from warehouse.store.files import CellRow
from warehouse.store.labelling import find_run

DETAILED = 4
"""Most runs with their own chapters; campaigns can have hundreds of runs. An engineering choice."""

NAMED = ("fidelity", "backend", "round_seconds", "restart_seconds", "window_rounds", "forecasts")
"""Settings, besides parameters and seed, that distinguish runs of the same policy."""


@dataclass(frozen=True)
class ReportedRun:
    """A run in a report.

    Attributes:
        policy: The campaign's name of the policy; without a campaign, the policy with the
            parameters that distinguish it among runs of the workload.
        options: The campaign's variant of the settings; without a campaign, the settings that
            differ.
        group: Workload and cluster; reports compare runs within a group.
        settings: Settings and versions of packages.
        figures: The run's row of `run_summary`.
    """

    run: str
    policy: str
    options: str
    group: str
    seed: int
    settings: dict[str, Any]
    figures: dict[str, Any]

    @property
    def label(self) -> str:
        """Policy and options; equal for runs that differ only in their seeds."""
        return f"{self.policy}, {self.options}" if self.options else self.policy

    @property
    def circumstances(self) -> tuple[str, str, int]:
        """What paired runs of different policies must share."""
        return self.group, self.options, self.seed


def query_by_run(
    analytics: Analytics, asked: Sequence[str], runs: Sequence[str]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the rows of queries (files of `queries/`) by name and run; every run has a list."""
    found: dict[str, dict[str, list[dict[str, Any]]]] = {
        name: {run: [] for run in runs} for name in asked
    }
    if not runs:
        return found
    answers = analytics.queries([*map(query_sql, asked)], list(dict.fromkeys(runs)))
    for name, (columns, rows) in zip(asked, answers, strict=True):
        for row in rows:
            cells = dict(zip(columns, row, strict=True))
            found[name][cells.pop("run")].append(cells)
    return found


def query_sql(name: str) -> str:
    """Return a query of reports, from its file."""
    text = (Path(__file__).parent / "queries" / f"{name}.sql").read_text(encoding="utf-8")
    return text.replace("{described}", DESCRIBED)


def read_entries(analytics: Analytics, about: str | Sequence[str]) -> list[ReportedRun]:
    """Return runs with their labels and headline figures.

    `about` is a run, runs separated by commas, a campaign, or a list of runs. A campaign gives an
    entry per finished cell, in its order and with its names of policies, workloads, clusters and
    options.

    Raises:
        InputError: There is no such run or campaign, or it has no rounds yet.
        WarehouseError: A file is damaged.
    """
    named = _find_named(analytics, about)
    runs = list(dict.fromkeys(run for run, _ in named))
    asked = query_by_run(analytics, ("settings", "summary"), runs)
    figures = {run: row for run, (row,) in asked["summary"].items()}
    settings = {run: {"run": run, **row} for run, (row,) in asked["settings"].items()}
    for row in settings.values():
        row["group"] = _group(row)
    several = len({cell.options for _, cell in named if cell}) > 1
    entries = []
    for run, cell in named:
        row = settings[run]
        if cell:
            names = cell.policy, cell.options if several else ""
            group = f"{cell.workload} on {cell.cluster}"
        else:
            names, group = _names(row, list(settings.values())), row["group"]
        entries.append(ReportedRun(run, *names, group, row["seed"], row, figures[run]))
    return entries


def _find_named(
    analytics: Analytics, about: str | Sequence[str]
) -> list[tuple[str, CellRow | None]]:
    """Return the runs that have begun, or the finished cells with their runs, that are named."""
    known = dict(analytics.query(query_sql("begun"))[1])
    parts = about.split(",") if isinstance(about, str) else about
    asked = filter(None, (part.strip() for part in parts))
    names = list(dict.fromkeys(find_run(analytics.warehouse, part) for part in asked))
    if len(names) == 1 and names[0] not in known:
        cells = _cells(analytics, names[0])
        if cells:
            return [(cell.run, cell) for cell in cells]
    for run in names:
        if run not in known:
            campaigns = (path.name for path in (analytics.warehouse / "campaigns").glob("*"))
            problem = f"not in the warehouse {analytics.warehouse}"
            remedy = f"{likely(run, [*campaigns, *known])}list runs with: shockwave run list"
            raise InputError(f"run or campaign {run!r}", problem, remedy)
        if not known[run]:
            raise InputError(f"run {run!r}", "has no rounds yet", f"shockwave resume {run}")
    if not names:
        raise InputError("run or campaign", "is empty", "name one, or several as RUN,RUN")
    return [(run, None) for run in names]


def _cells(analytics: Analytics, campaign: str) -> list[CellRow]:
    """Return a campaign's finished cells; none if there is no such campaign."""
    if campaign not in {path.name for path in (analytics.warehouse / "campaigns").glob("*")}:
        return []
    cells = [cell for cell in read_cells(analytics.warehouse, campaign) if cell.run]
    if not cells:
        remedy = "go on with it first"
        raise InputError(f"campaign {campaign!r}", "has no finished cell yet", remedy)
    return cells


def select_detailed(entries: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Return the runs with their own chapters: the first of each label, at most `DETAILED`."""
    return list({entry.run: entry for entry in select_firsts(entries)}.values())[:DETAILED]


def select_firsts(entries: Sequence[ReportedRun]) -> list[ReportedRun]:
    """Return the first run of each label on each workload."""
    found: dict[tuple[str, str], ReportedRun] = {}
    for entry in entries:
        found.setdefault((entry.group, entry.label), entry)
    return list(found.values())


def group_runs(entries: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Return the runs by workload and cluster, in order."""
    groups: dict[str, list[ReportedRun]] = {}
    for entry in entries:
        groups.setdefault(entry.group, []).append(entry)
    return groups


def group_by_label(entries: Sequence[ReportedRun]) -> dict[str, list[ReportedRun]]:
    """Return the runs by label, in order; this order determines the colours."""
    groups: dict[str, list[ReportedRun]] = {}
    for entry in entries:
        groups.setdefault(entry.label, []).append(entry)
    return groups


def list_labels(entries: Sequence[ReportedRun]) -> list[str]:
    """Return the distinct labels in the order of the runs."""
    return list(group_by_label(entries))


def _group(row: dict[str, Any]) -> str:
    nodes = "" if row["gpus_per_node"] == 1 else f", {row['gpus_per_node']} a node"
    return f"{row['trace']} on {row['gpus']} GPUs{nodes}"


def _names(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> tuple[str, str]:
    """Return the policy and options, as far as they differ among its runs on the same workload."""
    alike = [r for r in rows if (r["group"], r["policy"]) == (row["group"], row["policy"])]

    def differs(name: str) -> bool:
        return any(other[name] != row[name] for other in alike)

    parameters = row["parameters"] if differs("parameters") else ()
    policy = [row["policy"], *(f"{part['name']}={part['value']:g}" for part in parameters)]
    options = [f"{name}={_as_text(row[name])}" for name in NAMED if differs(name)]
    return " ".join(policy), " ".join(options)


def _as_text(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
