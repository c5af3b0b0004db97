-- How full was the cluster hour by hour, and how many jobs waited?
-- asked by: operators
-- of: one run
SELECT
    floor(clock_seconds / 3600)::BIGINT AS hour,
    sum(busy_gpus * seconds) / sum((busy_gpus + idle_gpus) * seconds) AS leased_share,
    max(active_jobs) AS most_active_jobs,
    max(active_jobs - running_jobs) AS most_waiting_jobs
FROM rounds
WHERE run = getvariable('run') AND seconds > 0
GROUP BY hour
ORDER BY hour
