"""The jobs of a run: outcomes, leases, regimes and forecasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

JOBS = """
SELECT o.* EXCLUDE (run), o.run AS run, r.round AS admitted_round,
    r.active_jobs / nullif(r.busy_gpus + r.idle_gpus, 0) AS load
FROM job_outcomes AS o
LEFT JOIN rounds AS r ON r.run = o.run AND r.clock_seconds = o.admitted_seconds
ORDER BY o.run, job_id
"""

LEASES = """
SELECT l.run AS run, l.job_id AS job_id, l.start_seconds AS start_seconds,
    l.end_seconds AS end_seconds, l.gpus AS gpus, l.ended AS ended, e.round AS ended_round,
    coalesce(e.reason, '') AS reason
FROM leases AS l
LEFT JOIN events AS e ON e.run = l.run AND e.job_id = l.job_id AND e.kind = l.ended
    AND e.at_seconds = l.end_seconds
ORDER BY l.run, l.job_id, l.start_seconds
"""

REGIMES = """
SELECT run, job_id, min(epoch) AS epoch, max(epoch + epochs) AS epoch_end, batch_size
FROM (
    SELECT *, sum(changed::INT) OVER (PARTITION BY run, job_id ORDER BY epoch, round) AS regime
    FROM (
        SELECT run, round, job_id, epoch, epochs, batch_size, batch_size IS DISTINCT FROM
            lag(batch_size) OVER (PARTITION BY run, job_id ORDER BY epoch, round) AS changed
        FROM telemetry
    )
)
GROUP BY run, job_id, regime, batch_size ORDER BY run, job_id, epoch
"""
"""Query that merges consecutive reports at one batch size into a regime."""

POINTS = 20
"""Most forecasts kept per job, evenly spaced. An engineering choice."""

FORECASTS = f"""
SELECT run, job_id, round(trained / 3600, 4) AS trained, round(forecast / 3600, 4) AS forecast,
    round(low / 3600, 4) AS low, round(high / 3600, 4) AS high, round(truth / 3600, 4) AS truth
FROM (
    SELECT f.run AS run, f.job_id AS job_id, f.round AS round, f.run_seconds AS trained,
        remaining_seconds AS forecast, low_seconds AS low, high_seconds AS high,
        CASE WHEN o.finish_seconds IS NOT NULL THEN o.run_seconds - f.run_seconds END AS truth,
        row_number() OVER (PARTITION BY f.run, f.job_id ORDER BY f.round) - 1 AS number,
        greatest(1, count(*) OVER (PARTITION BY f.run, f.job_id) - 1) AS of_all
    FROM forecasts AS f JOIN job_outcomes AS o USING (run, job_id)
)
WHERE number IN (0, of_all)
    OR number * {POINTS - 1} // of_all > (number - 1) * {POINTS - 1} // of_all
ORDER BY run, job_id, round
"""

OF_JOBS = (JOBS, LEASES, REGIMES, FORECASTS)

Rows = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class RunJobs:
    """The jobs of a run.

    Attributes:
        rows: Rows of `JOBS`, by job id.
        leases: Rows of `LEASES`, by job id.
        regimes: Rows of `REGIMES`, by job id.
        forecasts: Rows of `FORECASTS`, by job id.
    """

    run: str
    rows: Mapping[int, dict[str, Any]]
    leases: Mapping[int, Sequence[dict[str, Any]]]
    regimes: Mapping[int, Sequence[dict[str, Any]]]
    forecasts: Mapping[int, Sequence[dict[str, Any]]]

    def notable(self) -> dict[int, str]:
        """Return up to six jobs with the reason: worst ρ, most preempted, longest, most regimes."""
        found: dict[int, list[str]] = {}
        jobs = list(self.rows.values())
        for why, most, value in (
            ("worst ρ", 2, lambda job: job["ftf"]),
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


def jobs_of(run: str, rows: Rows, *parts: Rows) -> RunJobs:
    """Return the jobs of a run from its results of the queries `OF_JOBS`."""
    jobs = {row["job_id"]: row for row in rows}
    return RunJobs(run, jobs, *(_by_job(part, list(jobs)) for part in parts))


def _by_job(rows: Rows, jobs: Sequence[int]) -> dict[int, list[dict[str, Any]]]:
    found: dict[int, list[dict[str, Any]]] = {job: [] for job in jobs}
    for row in rows:
        found[row["job_id"]].append(row)
    return found
