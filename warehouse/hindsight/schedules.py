"""Schedules of a log's jobs: the actual one, and those of simulated policies."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from predictor.errors import WarehouseError
from warehouse.analytics.definitions import UNFAIR_RHO
from warehouse.analytics.questions import Analytics
from warehouse.hindsight.jobs import Array, LoggedJobs
from warehouse.report.figure import Row
from warehouse.report.selection import query_by_run

ACTUAL = "actual"
"""Label of the schedule in the log."""

POINTS = 400
"""Points of a schedule's load over time, as in reports of runs. An engineering choice."""

WEEK_SECONDS = 7 * 86_400.0

OUTCOMES = "SELECT job_id, finish_seconds, waiting_seconds FROM job_outcomes ORDER BY job_id"
UTILIZATION = "SELECT utilization FROM run_summary"


@dataclass(frozen=True)
class Schedule:
    """When each job of a log ended, and how long it waited.

    Attributes:
        label: `actual`, or the policy.
        jobs: The jobs.
        ends: Ends in seconds, by job id.
        waits: Seconds between arrival and end in which a job held no GPUs, by job id.
        utilization: GPU time in use over GPUs × makespan, as in `run_summary`.
        load: Share of GPUs that are held and waiting jobs over time, as the query `load` has them.
        run: The run; empty for the actual schedule.
    """

    label: str
    jobs: LoggedJobs
    ends: Array
    waits: Array
    utilization: float
    load: Sequence[Row]
    run: str = ""

    @cached_property
    def jcts(self) -> Array:
        """Completion times in seconds, by job id."""
        return self.ends - self.jobs.arrivals

    @cached_property
    def rhos(self) -> Array:
        """ρ by job id."""
        return self.jobs.measure_rhos(self.ends)

    def summarize(self) -> dict[str, Any]:
        """Return the headline figures; times are in seconds."""
        figures: dict[str, Any] = {"schedule": self.label}
        for name, values in (("wait", self.waits), ("jct", self.jcts)):
            figures[f"mean_{name}_s"] = float(values.mean())
            for level in (50, 95, 99):
                figures[f"{name}_p{level}_s"] = float(np.percentile(values, level))
        return figures | {
            "makespan_s": float(self.ends.max()),
            "utilization": self.utilization,
            "mean_rho": float(self.rhos.mean()),
            "rho_p95": float(np.percentile(self.rhos, 95)),
            "worst_rho": float(self.rhos.max()),
            "unfair_fraction": float((self.rhos > UNFAIR_RHO).mean()),
        }

    def measure_weeks(self) -> list[float]:
        """Return for each week how long it took from its first arrival to its jobs' last end."""
        week = (self.jobs.arrivals // WEEK_SECONDS).astype(int)
        return [
            float(self.ends[week == n].max() - self.jobs.arrivals[week == n].min())
            for n in np.unique(week)
        ]


def read_actual(jobs: LoggedJobs) -> Schedule:
    """Return the schedule in the log."""
    held = [
        (number, start - jobs.begin, end - jobs.begin)
        for number, job in enumerate(jobs.log.jobs)
        for start, end in job.held
    ]
    owners = np.array([number for number, _, _ in held])
    starts, stops = (np.array([period[at] for period in held]) for at in (1, 2))
    ends = np.full(len(jobs.log.jobs), -np.inf)
    np.maximum.at(ends, owners, stops)
    lengths = np.zeros(len(ends))
    np.add.at(lengths, owners, stops - starts)
    waits = np.maximum(ends - jobs.arrivals - lengths, 0.0)
    sizes = jobs.gpus[owners]
    edges = np.linspace(0.0, ends.max(), POINTS + 1)
    present = _average(jobs.arrivals, ends, np.ones(len(ends)), edges)
    running = _average(starts, stops, np.ones(len(starts)), edges)
    leased = _average(starts, stops, sizes, edges) / jobs.capacity
    load = [
        {
            "hours": round(float(at) / 3600, 4),
            "leased": round(float(share), 4),
            "queued": round(max(float(wait), 0.0), 2),
        }
        for at, share, wait in zip(edges[:-1], leased, present - running, strict=True)
    ]
    used = float(jobs.work.sum() / (jobs.capacity * ends.max()))
    return Schedule(ACTUAL, jobs, ends, waits, used, load)


def _average(starts: Array, stops: Array, weights: Array, edges: Array) -> Array:
    """Return the mean weight of the periods that cover a time, by interval between edges."""
    times = np.concatenate([starts, stops])
    steps = np.concatenate([weights, -weights])
    order = np.argsort(times, kind="stable")
    times, level = times[order], np.cumsum(steps[order])
    area = np.concatenate([[0.0], np.cumsum(level[:-1] * np.diff(times))])
    means: Array = np.diff(np.interp(edges, times, area)) / np.diff(edges)
    return means


def read_schedule(analytics: Analytics, run: str, label: str, jobs: LoggedJobs) -> Schedule:
    """Read the schedule of an ended run of the jobs.

    Raises:
        WarehouseError: A file is damaged, or the run has not ended.
    """
    (_, outcomes), (_, ((used,),)) = analytics.queries([OUTCOMES, UTILIZATION], [run])
    if len(outcomes) != len(jobs.log.jobs) or any(end is None for _, end, _ in outcomes):
        raise WarehouseError(f"run {run!r}", "has jobs without an end", "run the command again")
    _, ends, waits = (np.array(column, dtype=float) for column in zip(*outcomes, strict=True))
    load = query_by_run(analytics, ("load",), [run])["load"][run]
    return Schedule(label, jobs, ends, waits, used, load, run)
