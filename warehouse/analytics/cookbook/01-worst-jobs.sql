-- Which jobs fared worst, and what held them up?
-- asked by: operators
-- of: one run
SELECT run, job_id, name, tenant, model, mode, scale_factor, rho, jct_seconds, queueing_seconds,
    waiting_seconds, restart_seconds, preemptions
FROM job_outcomes
WHERE run = getvariable('run') AND rho IS NOT NULL
ORDER BY rho DESC, run, job_id
LIMIT 20
