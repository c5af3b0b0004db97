-- Where did each run's GPU time go?
-- asked by: operators
WITH leased AS (
    SELECT run,
        sum(run_seconds * scale_factor) / 3600 AS trained_hours,
        sum(restart_seconds * scale_factor) / 3600 AS restarting_hours,
        sum(idle_seconds * scale_factor) / 3600 AS idle_hours
    FROM leases
    GROUP BY run
)
SELECT
    run,
    s.policy,
    s.gpus * s.makespan_s / 3600 AS gpu_hours,
    trained_hours,
    restarting_hours,
    idle_hours,
    s.gpus * s.makespan_s / 3600 - s.gpu_hours AS unleased_hours,
    s.stranded_share
FROM run_summary AS s
JOIN leased USING (run)
ORDER BY run
