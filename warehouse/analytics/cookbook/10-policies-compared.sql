-- How do policies compare on the same workload and cluster, against the best of them?
-- asked by: researchers
SELECT
    trace,
    gpus,
    pools,
    policy,
    makespan_s,
    makespan_s / min(makespan_s) OVER same AS makespan_over_best,
    mean_jct_s,
    mean_jct_s / min(mean_jct_s) OVER same AS jct_over_best,
    worst_rho,
    unfair_fraction,
    nash_welfare,
    utilization
FROM run_summary
JOIN (
    SELECT
        run,
        array_to_string(list_transform(pools, lambda p: concat(
            p.gpu_type, ':', p.gpus // p.gpus_per_node, 'x', p.gpus_per_node
        )), ',') AS pools
    FROM runs
) USING (run)
WHERE complete
WINDOW same AS (PARTITION BY trace, pools)
ORDER BY trace, gpus, pools, mean_jct_s, policy
