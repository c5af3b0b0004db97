-- How much do a policy's figures vary from workload to workload?
-- asked by: researchers
SELECT
    policy,
    gpus,
    count(*) AS runs,
    avg(mean_jct_s) AS jct_mean_s,
    stddev_samp(mean_jct_s) AS jct_deviation_s,
    avg(makespan_s) AS makespan_mean_s,
    stddev_samp(makespan_s) AS makespan_deviation_s,
    max(worst_rho) AS worst_rho
FROM run_summary
WHERE complete
GROUP BY policy, gpus
ORDER BY policy, gpus
