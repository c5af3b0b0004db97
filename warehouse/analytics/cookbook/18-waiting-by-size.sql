-- How long do jobs of each size wait until they start?
-- asked by: tenants
SELECT
    r.policy,
    o.scale_factor,
    count(*) AS jobs,
    quantile_cont(o.queueing_seconds, 0.5) AS queueing_p50_s,
    quantile_cont(o.queueing_seconds, 0.95) AS queueing_p95_s,
    avg(o.waiting_seconds / o.jct_seconds) AS waiting_share
FROM job_outcomes AS o
JOIN runs AS r USING (run)
WHERE o.finish_seconds IS NOT NULL
GROUP BY r.policy, o.scale_factor
ORDER BY r.policy, o.scale_factor
