"""Selection of a report's runs, and their labels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from predictor.errors import InputError
from warehouse.analytics.questions import Analytics
from warehouse.store.campaigns import read_cells

DETAILED = 8
"""Most runs with sections round by round; a campaign can have hundreds. An engineering choice."""

BEGUN = """
SELECT run, r.run IS NOT NULL AS begun
FROM (SELECT run FROM headers) AS h LEFT JOIN (SELECT DISTINCT run FROM records) AS r USING (run)
"""

SETTINGS = """
SELECT run, policy, fidelity, parameters, asked_backend AS backend, round_seconds,
    restart_seconds, window_rounds, seed, trace, gpus, gpus_per_node, packages, first_hash,
    settings.forecasts AS forecasts
FROM runs JOIN (SELECT run, settings FROM headers) USING (run)
"""

NAMED = (
    "fidelity",
    "parameters",
    "backend",
    "round_seconds",
    "restart_seconds",
    "window_rounds",
    "forecasts",
)
"""Settings that distinguish runs of the same policy, apart from the seed."""


@dataclass(frozen=True)
class Entry:
    """A run in a report.

    Attributes:
        run: The run.
        label: Its policy, and the settings that distinguish it among runs of the workload. Runs
            that differ in their seed only have the same label.
        group: Workload and cluster; runs are compared within a group.
        settings: Its settings and packages.
        figures: Its row of `run_summary`.
    """

    run: str
    label: str
    group: str
    settings: dict[str, Any]
    figures: dict[str, Any]


def rows_of(analytics: Analytics, sql: str, runs: Sequence[str]) -> list[dict[str, Any]]:
    """The result of a query over a few runs, with a dictionary per row."""
    columns, rows = analytics.query(sql, runs)
    return [dict(zip(columns, row, strict=True)) for row in rows]


def runs_of(analytics: Analytics, name: str) -> list[str]:
    """The runs of a name.

    Args:
        analytics: The warehouse.
        name: A run, runs separated by commas, or a campaign.

    Raises:
        InputError: There is no such run or campaign, or it has no rounds yet.
    """
    _, rows = analytics.query(BEGUN)
    known = dict(rows)
    names = list(dict.fromkeys(filter(None, (part.strip() for part in name.split(",")))))
    if len(names) == 1 and names[0] not in known:
        names = _runs_of_campaign(analytics, names[0]) or names
    for run in names:
        if run not in known:
            raise InputError(
                f"run or campaign {run!r}",
                f"not in the warehouse {analytics.warehouse}",
                'list runs with: shockwave sql "SELECT run FROM runs"',
            )
        if not known[run]:
            raise InputError(f"run {run!r}", "has no rounds yet", f"shockwave resume {run}")
    if not names:
        raise InputError("run or campaign", "is empty", "name one, or several as RUN,RUN")
    return names


def _runs_of_campaign(analytics: Analytics, campaign: str) -> list[str]:
    """The runs of a campaign's finished cells; none if there is no such campaign."""
    if campaign not in {path.name for path in (analytics.warehouse / "campaigns").glob("*")}:
        return []
    cells = read_cells(analytics.warehouse, campaign)
    runs = list(dict.fromkeys(cell.run for cell in cells if cell.run))
    if not runs:
        raise InputError(
            f"campaign {campaign!r}", "has no finished cell yet", "go on with it first"
        )
    return runs


def entries_of(analytics: Analytics, runs: Sequence[str]) -> list[Entry]:
    """Runs with their labels and headline figures, in the order given."""
    settings = {row["run"]: row for row in rows_of(analytics, SETTINGS, runs)}
    figures = {row["run"]: row for row in rows_of(analytics, "SELECT * FROM run_summary", runs)}
    for row in settings.values():
        row["group"] = _group(row)
    return [
        Entry(
            run,
            _label(settings[run], list(settings.values())),
            settings[run]["group"],
            settings[run],
            figures[run],
        )
        for run in runs
    ]


def detailed(entries: Sequence[Entry]) -> list[Entry]:
    """The runs with sections round by round: the first of each label, up to `DETAILED`."""
    first: dict[tuple[str, str], Entry] = {}
    for entry in entries:
        first.setdefault((entry.group, entry.label), entry)
    return list(first.values())[:DETAILED]


def _group(row: dict[str, Any]) -> str:
    nodes = "" if row["gpus_per_node"] == 1 else f", {row['gpus_per_node']} a node"
    return f"{row['trace']} on {row['gpus']} GPUs{nodes}"


def _label(row: dict[str, Any], rows: Sequence[dict[str, Any]]) -> str:
    """The policy, and the settings that differ among its runs on the same workload."""
    alike = [r for r in rows if (r["group"], r["policy"]) == (row["group"], row["policy"])]
    parts = [row["policy"]]
    for name in NAMED:
        if any(other[name] != row[name] for other in alike):
            parts += _described(name, row[name])
    return " ".join(parts)


def _described(name: str, value: Any) -> list[str]:
    if name == "parameters":
        return [f"{part['name']}={part['value']:g}" for part in value]
    return [f"{name}={value:g}" if isinstance(value, float) else f"{name}={value}"]
