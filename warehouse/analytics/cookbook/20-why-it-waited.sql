-- Why did my job not run? By default the one that waited longest, round by round.
-- asked by: tenants
-- of: one run
WITH asked AS (
    SELECT job_id, scale_factor, admitted_seconds, coalesce(finish_seconds, 'inf') AS finish_seconds
    FROM job_outcomes
    WHERE run = getvariable('run')
        AND job_id = coalesce(getvariable('job')::BIGINT, job_id)
        AND admitted_seconds IS NOT NULL
    ORDER BY waiting_seconds DESC NULLS LAST, job_id
    LIMIT 1
)
SELECT
    a.job_id,
    n.round,
    n.clock_seconds,
    a.scale_factor,
    n.idle_gpus,
    n.running_jobs,
    b.weight,
    b.gpu_type,
    b.utility AS next_round_utility,
    next_round_utility / a.scale_factor AS worth,
    p.price
FROM asked AS a
JOIN rounds AS n
    ON n.run = getvariable('run')
        AND n.clock_seconds >= a.admitted_seconds AND n.clock_seconds < a.finish_seconds
ANTI JOIN (SELECT round, job_id FROM placements WHERE run = getvariable('run')) AS l
    ON l.round = n.round AND l.job_id = a.job_id
LEFT JOIN (SELECT * FROM bids WHERE run = getvariable('run')) AS b
    ON b.round = n.round AND b.job_id = a.job_id
LEFT JOIN (SELECT * FROM prices WHERE run = getvariable('run')) AS p
    ON p.round = n.round AND p.gpu_type = b.gpu_type
ORDER BY n.round, b.gpu_type
