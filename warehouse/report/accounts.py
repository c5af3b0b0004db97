"""The account of a job, in sentences and figures, for its section of the page."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.analytics.intervals import in_three_digits
from warehouse.report.figure import Row
from warehouse.report.jobs import RunJobs
from warehouse.report.table import Table
from warehouse.wording import counted


def make_table(jobs: RunJobs, of_all: int) -> Table:
    """Return the table of a run's jobs, those with the worst ρ first; the run has `of_all` jobs."""
    notable = jobs.notable()
    named = any(row["name"] for row in jobs.rows.values())
    rows = [
        {
            "job": row["job_id"],
            **({"name": row["name"]} if named else {}),
            "tenant": row["tenant"],
            "model": row["model"],
            "mode": row["mode"],
            "GPUs": row["scale_factor"],
            "arrival (h)": _hours(row["arrival_seconds"]),
            "JCT (h)": _hours(row["jct_seconds"]),
            "ρ": row["rho"],
            "without GPUs (h)": _hours(row["waiting_seconds"]),
            "training (h)": _hours(row["run_seconds"]),
            "restarts (h)": _hours(row["restart_seconds"]),
            "preemptions": row["preemptions"],
            "regimes": len(jobs.regimes[row["job_id"]]),
            "notable": notable.get(row["job_id"], ""),
        }
        for row in sorted(jobs.rows.values(), key=lambda row: (-(row["rho"] or 0), row["job_id"]))
    ]
    cut = f": {len(rows):,} of {of_all:,} jobs" if len(rows) < of_all else ""
    return Table(
        f"Jobs of {jobs.run}, the worst ρ first{cut}",
        rows,
        filters=("tenant", "model", "mode", "GPUs", "notable"),
        sections=jobs.run,
    )


def write_accounts(jobs: RunJobs) -> dict[str, dict[str, Any]]:
    """Return the contents of each job's section, by job id."""
    return {str(job): _account(jobs, job) for job in jobs.rows}


def _account(jobs: RunJobs, job: int) -> dict[str, Any]:
    row, leases = jobs.rows[job], jobs.leases[job]
    named = f"{row['name']}: " * bool(row["name"])
    return {
        "name": f"{named}{row['model']}, {row['mode']}, {counted(row['scale_factor'], 'GPU')}, "
        f"tenant {row['tenant']}, budget {row['budget']:g}",
        "why": list(_why(row, leases)),
        "longest": _longest_wait(row, leases),
        "leases": [
            [
                _hours(lease["start_seconds"]),
                _hours(lease["end_seconds"]),
                _spans(lease["gpus"]),
                ": ".join(filter(None, (lease["ended"] or "running", lease["reason"]))),
            ]
            for lease in leases
        ],
        "regimes": [[r["epoch"], r["epoch_end"], r["batch_size"]] for r in jobs.regimes[job]],
        "forecasts": [
            [f[name] for name in ("trained", "forecast", "low", "high", "truth")]
            for f in jobs.forecasts[job]
        ],
    }


def _why(row: Row, leases: Sequence[Row]) -> Iterator[str]:
    arrived = f"It arrived at {_time(row['arrival_seconds'])}"
    if not leases:
        yield f"{arrived} and has not run yet."
        return
    yield (
        f"{arrived} and first ran at {_time(row['start_seconds'])}, "
        f"after {_time(row['queueing_seconds'])} in the queue."
    )
    held = (
        f"It held GPUs for {_time(row['held_seconds'])}: {_time(row['run_seconds'])} of training, "
        f"{_time(row['restart_seconds'])} of restarts, {_time(row['idle_seconds'])} of waiting for "
        f"rounds to end."
    )
    if row["finish_seconds"] is None:
        yield f"{held} It has not ended yet."
        return
    yield held
    yield (
        f"It ended at {_time(row['finish_seconds'])}, {_time(row['jct_seconds'])} after it came; "
        f"for {_time(row['waiting_seconds'])} of these it held no GPUs."
    )
    if row["rho"] is not None:
        fair = row["jct_seconds"] / row["rho"]
        unfair = f"more than {UNFAIR_RHO}: unfairly treated"
        verdict = unfair if row["unfair"] else "not unfairly treated"
        yield (
            f"In an evenly shared cluster it would have ended within {_time(fair)}, a round and a "
            f"restart included: ρ is {in_three_digits(row['rho'])}, {verdict}."
        )
    if row["preemptions"]:
        longest, since = _longest_absence(leases)
        yield (
            f"It was preempted {counted(row['preemptions'], 'time')}; longest, for "
            f"{_time(longest)}, from {_time(since)} on."
        )


def _longest_absence(leases: Sequence[Row]) -> tuple[float, float]:
    """Return the longest time between two leases and when it began, in seconds."""
    gaps = [
        (after["start_seconds"] - before["end_seconds"], -before["end_seconds"])
        for before, after in pairwise(leases)
    ]
    longest, since = max(gaps, default=(0.0, -leases[-1]["end_seconds"]))
    return longest, -since


def _longest_wait(row: Row, leases: Sequence[Row]) -> int | None:
    """Return the round in which the job's longest wait began."""
    number: int | None = row["admitted_round"]
    if leases and row["preemptions"]:
        longest, since = _longest_absence(leases)
        if longest > (row["queueing_seconds"] or 0):
            ended = (x["ended_round"] for x in leases if x["end_seconds"] == since)
            number = next(ended, number)
    return number


def _spans(gpus: Sequence[int]) -> str:
    """Format numbers of GPUs, with neighbours as a range."""
    spans: list[list[int]] = []
    for gpu in sorted(gpus):
        if spans and spans[-1][1] == gpu - 1:
            spans[-1][1] = gpu
        else:
            spans.append([gpu, gpu])
    return ", ".join(f"{a}–{b}" if a < b else str(a) for a, b in spans)


def _hours(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds / 3600, 4) + 0.0  # avoid -0.0


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{in_three_digits(seconds)} s"
    if seconds < 3600:
        return f"{in_three_digits(seconds / 60)} min"
    return f"{in_three_digits(seconds / 3600)} h"
