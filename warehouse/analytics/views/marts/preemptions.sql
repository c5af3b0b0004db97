-- Preemptions: the job, the round, the preemptors, and the time without GPUs.
-- grain: one row per run, round and job that lost its lease
-- preemptors: the jobs that start, resume or move onto any of its GPUs in that round; empty if the
-- GPUs stay idle. away_seconds: time until the job got GPUs again; NULL if it has none yet.
WITH lost AS (
    SELECT run, round, job_id, at_seconds, gpus
    FROM events
    WHERE kind = 'preempted'
),
gained AS (
    SELECT run, round, job_id, unnest(gpus) AS gpu
    FROM events
    WHERE kind IN ('started', 'resumed', 'renewed')
),
taken AS (
    SELECT l.run, l.round, l.job_id,
        list(DISTINCT g.job_id ORDER BY g.job_id) AS preemptors,
        count(*) AS taken_gpus
    FROM (SELECT run, round, job_id, unnest(gpus) AS gpu FROM lost) AS l
    JOIN gained AS g ON g.run = l.run AND g.round = l.round AND g.gpu = l.gpu AND g.job_id <> l.job_id
    GROUP BY l.run, l.round, l.job_id
),
resumed AS (
    SELECT l.run, l.round, l.job_id, min(e.at_seconds) AS at_seconds
    FROM lost AS l
    JOIN events AS e
        ON e.run = l.run AND e.job_id = l.job_id AND e.kind = 'resumed' AND e.round > l.round
    GROUP BY l.run, l.round, l.job_id
)
SELECT
    run,
    round,
    l.at_seconds AS clock_seconds,
    job_id,
    j.tenant,
    l.gpus,
    len(l.gpus) AS scale_factor,
    coalesce(t.preemptors, []) AS preemptors,
    coalesce(t.taken_gpus, 0) AS taken_gpus,
    r.at_seconds AS resumed_seconds,
    r.at_seconds - l.at_seconds AS away_seconds
FROM lost AS l
JOIN jobs AS j USING (run, job_id)
LEFT JOIN taken AS t USING (run, round, job_id)
LEFT JOIN resumed AS r USING (run, round, job_id)
