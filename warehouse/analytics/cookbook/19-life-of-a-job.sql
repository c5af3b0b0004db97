-- What became of my job? By default of the one that fared worst.
-- asked by: tenants
-- of: one run
WITH asked AS (
    SELECT job_id
    FROM job_outcomes
    WHERE run = getvariable('run')
        AND job_id = coalesce(getvariable('job')::BIGINT, job_id)
    ORDER BY rho DESC NULLS LAST, job_id
    LIMIT 1
)
SELECT e.job_id, e.at_seconds, e.round, e.kind, e.gpus, p.preemptors, p.away_seconds
FROM events AS e
JOIN asked USING (job_id)
LEFT JOIN preemptions AS p
    ON p.run = e.run AND p.round = e.round AND p.job_id = e.job_id AND e.kind = 'preempted'
WHERE e.run = getvariable('run')
ORDER BY e.at_seconds, e.round
