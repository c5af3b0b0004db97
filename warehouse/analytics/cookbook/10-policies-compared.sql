-- How do policies compare on the same workload, against the best of them?
-- asked by: researchers
SELECT
    trace,
    gpus,
    policy,
    makespan_s,
    makespan_s / min(makespan_s) OVER same AS makespan_over_best,
    mean_jct_s,
    mean_jct_s / min(mean_jct_s) OVER same AS jct_over_best,
    worst_ftf,
    unfair_fraction,
    nash_welfare,
    utilization
FROM run_summary
WHERE complete
WINDOW same AS (PARTITION BY trace, gpus)
ORDER BY trace, gpus, mean_jct_s, policy
