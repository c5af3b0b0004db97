-- Each tenant's figures in a run, defined as in run_summary, and its share of GPU time and budget.
-- grain: one row per run and tenant; figures cover what has happened so far
-- Sums run in order of job ids and tenants, because another order would change their last digits.
SELECT
    o.run,
    o.tenant,
    count(*) AS jobs,
    count(o.finish_seconds) AS finished,
    avg(o.jct_seconds ORDER BY o.job_id) AS mean_jct_s,
    quantile_cont(o.jct_seconds, 0.5) AS jct_p50_s,
    quantile_cont(o.jct_seconds, 0.95) AS jct_p95_s,
    quantile_cont(o.jct_seconds, 0.99) AS jct_p99_s,
    avg(o.queueing_seconds ORDER BY o.job_id) AS mean_queueing_s,
    avg(o.waiting_seconds ORDER BY o.job_id) AS mean_waiting_s,
    max(o.rho) AS worst_rho,
    quantile_cont(o.rho, 0.5) AS rho_p50,
    quantile_cont(o.rho, 0.9) AS rho_p90,
    quantile_cont(o.rho, 0.99) AS rho_p99,
    avg(o.unfair::INT) AS unfair_fraction,
    exp(
        sum(o.budget * ln(o.utility) ORDER BY o.job_id)
        / sum(o.budget ORDER BY o.job_id) FILTER (o.utility IS NOT NULL)
    ) AS nash_welfare,
    sum((NOT o.proportional)::INT)::BIGINT AS proportionality_violations,
    sum(e.envious::INT)::BIGINT AS envy_violations,
    max(e.envy) AS worst_envy,
    sum(o.held_gpu_seconds ORDER BY o.job_id) / 3600 AS gpu_hours,
    sum(o.gpu_seconds ORDER BY o.job_id) / 3600 AS gpu_hours_trained,
    sum(o.cost ORDER BY o.job_id) AS cost,
    sum(o.market_cost ORDER BY o.job_id) AS market_cost,
    gpu_hours / nullif(sum(gpu_hours) OVER tenants, 0) AS gpu_share,
    sum(o.budget ORDER BY o.job_id) / sum(sum(o.budget ORDER BY o.job_id)) OVER tenants AS budget_share,
    sum(o.spread_gpu_seconds ORDER BY o.job_id)
        / nullif(sum(o.held_gpu_seconds ORDER BY o.job_id), 0) AS spread_share,
    sum(o.launches)::BIGINT AS launches,
    sum(o.preemptions)::BIGINT AS preemptions,
    sum(o.restart_seconds ORDER BY o.job_id) AS restart_s,
    sum(o.idle_seconds ORDER BY o.job_id) AS idle_s
FROM job_outcomes AS o
LEFT JOIN envy AS e USING (run, job_id)
GROUP BY o.run, o.tenant
WINDOW tenants AS (
    PARTITION BY o.run ORDER BY o.tenant ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
)
