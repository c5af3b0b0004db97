-- Which jobs were preempted most often, and what did it cost them?
-- asked by: operators
-- of: one run
SELECT
    p.run,
    p.job_id,
    any_value(p.tenant) AS tenant,
    any_value(p.scale_factor) AS scale_factor,
    count(*) AS preemptions,
    sum(p.away_seconds) AS away_seconds,
    any_value(o.restart_seconds) AS restart_seconds,
    any_value(o.rho) AS rho
FROM preemptions AS p
JOIN job_outcomes AS o USING (run, job_id)
WHERE p.run = getvariable('run')
GROUP BY p.run, p.job_id
ORDER BY preemptions DESC, away_seconds DESC, p.run, p.job_id
LIMIT 20
