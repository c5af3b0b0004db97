-- Jobs that share their GPUs, by round.
-- grain: one row per run, round and job that shares
-- seconds: how long both held the GPUs, until the round or one of the two jobs ended.
WITH shared AS (
    SELECT run, round, p.clock_seconds, p.job_id, p.gpus
    FROM placements AS p
    JOIN round_facts AS f USING (run, round)
    WHERE f.shared_gpus > 0
),
ends AS (
    SELECT run, round, job_id, min(at_seconds) AS at_seconds
    FROM events
    WHERE kind IN ('finished', 'withdrawn', 'crashed', 'stopped', 'unstarted', 'lost', 'failed')
    GROUP BY run, round, job_id
),
launches AS (
    SELECT run, round, job_id, max(at_seconds) AS at_seconds
    FROM events
    WHERE kind IN ('started', 'renewed', 'resumed')
    GROUP BY run, round, job_id
)
SELECT
    a.run,
    a.round,
    a.job_id,
    b.job_id AS shared_with,
    greatest(
        0, least(n.clock_seconds, e.at_seconds, f.at_seconds) - greatest(a.clock_seconds, c.at_seconds, d.at_seconds)
    ) AS seconds
FROM shared AS a
JOIN shared AS b ON b.run = a.run AND b.round = a.round AND b.gpus = a.gpus AND b.job_id <> a.job_id
LEFT JOIN round_facts AS n ON n.run = a.run AND n.round = a.round + 1
LEFT JOIN ends AS e ON e.run = a.run AND e.round = a.round + 1 AND e.job_id = a.job_id
LEFT JOIN launches AS c ON c.run = a.run AND c.round = a.round AND c.job_id = a.job_id
LEFT JOIN launches AS d ON d.run = a.run AND d.round = a.round AND d.job_id = b.job_id
LEFT JOIN ends AS f ON f.run = a.run AND f.round = a.round + 1 AND f.job_id = b.job_id
