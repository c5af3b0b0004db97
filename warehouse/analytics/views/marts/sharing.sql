-- Jobs that share their GPUs, by round.
-- grain: one row per run, round and job that shares
-- seconds: how long both held them, until the round or one of the two jobs ended.
WITH shared AS (
    SELECT run, round, clock_seconds, unnest(leases) AS l
    FROM (
        SELECT run, round, clock_seconds, leases
        FROM records
        WHERE len(list_distinct(list_transform(leases, lambda l: l.gpus[1]))) < len(leases)
    )
),
pairs AS (
    SELECT a.run, a.round, a.clock_seconds, a.l.job_id AS job_id, b.l.job_id AS shared_with
    FROM shared AS a
    JOIN shared AS b ON b.run = a.run AND b.round = a.round AND b.l.gpus = a.l.gpus
        AND b.l.job_id <> a.l.job_id
),
ends AS (
    SELECT run, round, clock_seconds, list_transform(finished, lambda e: e.job_id) AS jobs,
        list_transform(finished, lambda e: e.at_seconds) AS times
    FROM records
)
SELECT
    p.run,
    p.round,
    p.job_id,
    p.shared_with,
    least(
        e.clock_seconds,
        e.times[list_position(e.jobs, p.job_id)],
        e.times[list_position(e.jobs, p.shared_with)]
    ) - p.clock_seconds AS seconds
FROM pairs AS p
LEFT JOIN ends AS e ON e.run = p.run AND e.round = p.round + 1
