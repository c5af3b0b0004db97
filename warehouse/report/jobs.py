"""The jobs of a run: outcomes, leases, regimes and forecasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OF_JOBS = ("jobs", "leases", "regimes", "forecasts")
"""Queries of what a report says of single jobs."""

MOST_JOBS = 2000
"""Most jobs of a run that a page describes one by one: more make it slow to open."""

DESCRIBED = f"""
    SELECT run, job_id
    FROM job_outcomes
    QUALIFY row_number() OVER (PARTITION BY run ORDER BY rho DESC NULLS LAST, job_id) <= {MOST_JOBS}
"""
"""Query for the jobs that a report describes: those with the worst ρ."""

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class RunJobs:
    """The jobs of a run.

    Attributes:
        rows: Rows of the query `jobs`, by job id.
        leases: Rows of the query `leases`, by job id; `regimes` and `forecasts` are alike.
    """

    run: str
    rows: Mapping[int, dict[str, Any]]
    leases: Mapping[int, Rows]
    regimes: Mapping[int, Rows]
    forecasts: Mapping[int, Rows]

    def notable(self) -> dict[int, str]:
        """Return up to six jobs with the reason: worst ρ, most preempted, longest, most regimes."""
        found: dict[int, list[str]] = {}
        jobs = list(self.rows.values())
        for why, most, value in (
            ("worst ρ", 2, lambda job: job["rho"]),
            ("most preempted", 2, lambda job: job["preemptions"]),
            ("longest", 1, lambda job: job["jct_seconds"]),
            ("most regimes", 2, lambda job: len(self.regimes[job["job_id"]])),
        ):
            known = [job for job in jobs if value(job)]
            for job in sorted(known, key=lambda job: (-value(job), job["job_id"]))[:most]:
                found.setdefault(job["job_id"], []).append(why)
        return {job: ", ".join(why) for job, why in list(found.items())[:6]}

    def name(self, job: int) -> str:
        """Describe a job in a few words."""
        row = self.rows[job]
        named = f" ({row['name']})" * bool(row["name"])
        return f"job {job}{named}: {row['model']}, {row['mode']}"


def collect_jobs(run: str, rows: Rows, *parts: Rows) -> RunJobs:
    """Return the jobs of a run from its results of the queries `OF_JOBS`."""
    jobs = {row["job_id"]: row for row in rows}
    found: list[dict[int, list[dict[str, Any]]]] = [{job: [] for job in jobs} for _ in parts]
    for by_job, part in zip(found, parts, strict=True):
        for row in part:
            by_job[row["job_id"]].append(row)
    return RunJobs(run, jobs, *found)
