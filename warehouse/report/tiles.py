"""Tiles: the headline figures of a run, or of policies."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean

from warehouse.analytics.intervals import in_three_digits
from warehouse.report.figure import Row
from warehouse.report.metrics import MAKESPAN, MEAN_JCT, RESTARTS, UNFAIR, WORST_RHO
from warehouse.report.selection import ReportedRun


@dataclass(frozen=True)
class Tile:
    """A figure at the head of a report.

    Attributes:
        value: The figure, with its unit.
        notes: Figures for comparison.
    """

    name: str
    value: str
    notes: Sequence[str]
    job: int | None = None


def make_run_tiles(entry: ReportedRun, worst: int | None, costs: Sequence[Row] = ()) -> list[Tile]:
    """Return the tiles of one run.

    `worst` is the job with the worst ρ, if a job has ended. `costs` has the run's rows of the query
    `cost`; without prices of GPUs there is no tile of costs.
    """
    figures = entry.figures
    makespan, bound, jct = (
        figures[name] for name in ("makespan_s", "makespan_bound_s", "mean_jct_s")
    )
    if not figures["complete"]:
        against = "so far: not all jobs have ended"
    elif bound:
        against = f"{makespan / bound:.3g} × the lower bound of {_hours(bound)}"
    else:
        against = "its lower bound is known on one GPU type only, with true run times"
    slowest = f"99th percentile {_hours(figures['jct_p99_s'])}"
    unfair = f"{_plain(UNFAIR.of(entry))} % of the jobs unfairly treated"
    restarts = RESTARTS.of(entry)
    lost = "–" if restarts is None else f"{_plain(restarts)} %"
    events = f"{figures['preemptions']:,} preemptions, {figures['launches']:,} launches"
    tiles = [
        Tile("Makespan", _hours(makespan), [against]),
        Tile("Mean JCT", _hours(jct), [] if jct is None else [slowest]),
        Tile("Worst ρ", _plain(figures["worst_rho"]), [] if jct is None else [unfair], worst),
        Tile("Cost of restarts", lost, ["of the leased GPU time", events]),
    ]
    for row in costs:
        if row["cost"]:
            held = f"of {row['gpu_hours']:,.1f} GPU-hours held"
            tiles.append(Tile("Cost", f"{row['cost']:,.2f}", [held]))
    return tiles


def make_policy_tiles(entries: Sequence[ReportedRun]) -> list[Tile]:
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
        ("Worst ρ of any run" if several else "Worst ρ", WORST_RHO.of, "", max),
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
