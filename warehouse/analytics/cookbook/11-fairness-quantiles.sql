-- How is finish-time fairness distributed under each policy?
-- asked by: researchers
SELECT
    policy,
    count(*) AS jobs,
    quantile_cont(value, 0.1) AS p10,
    quantile_cont(value, 0.5) AS p50,
    quantile_cont(value, 0.9) AS p90,
    quantile_cont(value, 0.99) AS p99,
    max(value) AS worst,
    avg((value > 1.05)::INT) AS unfair_fraction
FROM distributions
JOIN runs USING (run)
WHERE metric = 'rho'
GROUP BY policy
ORDER BY policy
