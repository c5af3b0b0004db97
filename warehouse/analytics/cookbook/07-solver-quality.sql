-- How were the plans found, how near to the bound, and how fast?
-- asked by: operators
SELECT
    policy,
    backend,
    status,
    count(*) AS rounds,
    max(gap) AS worst_gap,
    quantile_cont(solve_ms, 0.5) AS solve_ms_p50,
    quantile_cont(solve_ms, 0.95) AS solve_ms_p95,
    max(solve_ms) AS solve_ms_max
FROM solves
GROUP BY policy, backend, status
ORDER BY policy, backend, status
