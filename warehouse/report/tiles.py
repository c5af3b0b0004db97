"""Tiles: the headline figures of a run, or of policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from warehouse.analytics.intervals import in_three_digits
from warehouse.analytics.questions import Analytics
from warehouse.report.figure import Row
from warehouse.report.metrics import MAKESPAN, MEAN_JCT, RESTARTS, UNFAIR, WORST_FTF
from warehouse.report.selection import SUMMARY, ReportedRun, rows_of

PUBLISHED = "shockwave-published"
"""The policy that is Shockwave as its authors published it."""

SAME_WORK = f"""
SELECT p.run AS run
FROM runs AS h JOIN runs AS p ON p.workload = h.workload AND p.pools = h.pools
    AND p.round_seconds = h.round_seconds AND p.restart_seconds = h.restart_seconds
WHERE h.run = '{{run}}' AND p.policy = '{PUBLISHED}'
    AND p.run IN (SELECT run FROM records)
ORDER BY p.created_at DESC, p.run DESC LIMIT 1
"""
"""Query of the newest run of the published system on the same jobs, cluster and terms."""

COST = """
SELECT run, sum(cost::DECIMAL(18, 6))::DOUBLE AS cost,
    sum((scale_factor * (seconds - shared_seconds / 2))::DECIMAL(18, 6))::DOUBLE / 3600 AS gpu_hours
FROM leases GROUP BY run
"""
"""Query of a run's GPU-hours and their cost, in the currency of the prices."""


@dataclass(frozen=True)
class Tile:
    """A figure at the head of a report.

    Attributes:
        value: The figure, with its unit.
        notes: Figures for comparison.
        job: A job to look at, if any.
    """

    name: str
    value: str
    notes: Sequence[str]
    job: int | None = None


def of_run(
    entry: ReportedRun, worst: int | None, published: Row | None, costs: Sequence[Row] = ()
) -> list[Tile]:
    """Return the tiles of one run.

    Args:
        entry: The run.
        worst: The job with the worst ρ, if a job has ended.
        published: The published system's figures on the same work, if known.
        costs: The run's rows of `COST`; without prices of GPUs there is no tile of costs.
    """
    figures = entry.figures
    makespan, bound = figures["makespan_s"], figures["makespan_bound_s"]
    if not figures["complete"]:
        against = ["so far: not all jobs have ended"]
    elif bound:
        against = [f"{makespan / bound:.3g} × the lower bound of {_hours(bound)}"]
    else:
        against = ["its lower bound is known on one GPU type only, with true run times"]
    restarts = RESTARTS.of(entry)
    jct = figures["mean_jct_s"]
    return [
        Tile("Makespan", _hours(makespan), against + _beside(published, "makespan_s", _hours)),
        Tile(
            "Mean JCT",
            _hours(jct),
            ([] if jct is None else [f"99th percentile {_hours(figures['jct_p99_s'])}"])
            + _beside(published, "mean_jct_s", _hours),
        ),
        Tile(
            "Worst ρ",
            _plain(figures["worst_ftf"]),
            ([] if jct is None else [f"{_plain(UNFAIR.of(entry))} % of the jobs unfairly treated"])
            + _beside(published, "worst_ftf", _plain),
            worst,
        ),
        Tile(
            "Cost of restarts",
            "–" if restarts is None else f"{_plain(restarts)} %",
            [
                "of the leased GPU time",
                f"{figures['preemptions']:,} preemptions, {figures['launches']:,} launches",
            ],
        ),
        *(
            Tile("Cost", f"{row['cost']:,.2f}", [f"of {row['gpu_hours']:,.1f} GPU-hours held"])
            for row in costs
            if row["cost"]
        ),
    ]


def published_beside(analytics: Analytics, entry: ReportedRun) -> Row | None:
    """Return the published system's figures on the same work, if the warehouse has such a run.

    Raises:
        WarehouseError: A file is damaged.
    """
    if entry.settings["policy"] == PUBLISHED:
        return None
    found = analytics.query(SAME_WORK.replace("{run}", entry.run.replace("'", "''")))[1]
    if not found:
        return None
    ((row,),) = rows_of(analytics, [SUMMARY], [found[0][0]])
    return row if row["complete"] else None


def _beside(
    published: Row | None, column: str, as_text: Callable[[float | None], str]
) -> list[str]:
    if published is None:
        return []
    return [f"published system: {as_text(published[column])}"]


def of_policies(entries: Sequence[ReportedRun]) -> list[Tile]:
    """Return the tiles of several runs: the best policy of each figure, then the others.

    They cover the circumstances that all policies ran in, if there are any. Values are means over
    runs, except that ρ is the worst of any run.
    """
    policies = list(dict.fromkeys(entry.policy for entry in entries))
    shared = set.intersection(
        *({e.circumstances for e in entries if e.policy == policy} for policy in policies)
    )
    counted = [e for e in entries if e.circumstances in shared] or list(entries)

    def bound(entry: ReportedRun) -> float | None:
        makespan, least = entry.figures["makespan_s"], entry.figures["makespan_bound_s"]
        return makespan / least if least and entry.figures["complete"] else None

    several = len(counted) > len(policies)
    known = any(bound(entry) is not None for entry in counted)
    asked: list[
        tuple[str, Callable[[ReportedRun], float | None], str, Callable[[list[float]], float]]
    ]
    asked = [
        ("Makespan over its lower bound", bound, "×", fmean)
        if known
        else ("Makespan", MAKESPAN.of, "h", fmean),
        ("Mean JCT", MEAN_JCT.of, "h", fmean),
        ("Worst ρ of any run" if several else "Worst ρ", WORST_FTF.of, "", max),
        ("Restarts, of leased GPU time", RESTARTS.of, "%", fmean),
    ]
    tiles = []
    for name, of, unit, fold in asked:
        values = {
            policy: fold(known_)
            for policy in policies
            if (known_ := [v for e in counted if e.policy == policy and (v := of(e)) is not None])
        }
        ranked = sorted(values, key=lambda policy: (values[policy], policy))
        texts = [f"{_plain(values[policy])}\N{NO-BREAK SPACE}{unit}".strip() for policy in ranked]
        notes = [f"{policy} {value}" for policy, value in zip(ranked, texts, strict=True)]
        tiles.append(Tile(name, texts[0] if texts else "–", _few(notes)))
    return tiles


def _few(notes: Sequence[str]) -> list[str]:
    return [*notes[:4], f"and {len(notes) - 4} more"] if len(notes) > 5 else list(notes)


def _hours(seconds: float | None) -> str:
    return "–" if seconds is None else f"{in_three_digits(seconds / 3600)}\N{NO-BREAK SPACE}h"


def _plain(value: float | None) -> str:
    return "–" if value is None else in_three_digits(value)
