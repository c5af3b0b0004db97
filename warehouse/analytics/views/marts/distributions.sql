-- Empirical distributions over each run's finished jobs, ready to plot.
-- grain: one row per run, metric and finished job
-- share: part of the finished jobs with at most this value.
WITH finished AS (
    SELECT run, job_id, jct_seconds, queueing_seconds, rho
    FROM job_outcomes
    WHERE finish_seconds IS NOT NULL
)
SELECT
    run,
    metric,
    job_id,
    value,
    cume_dist() OVER (PARTITION BY run, metric ORDER BY value) AS share
FROM (UNPIVOT finished ON COLUMNS(* EXCLUDE (run, job_id)) INTO NAME metric VALUE value)
