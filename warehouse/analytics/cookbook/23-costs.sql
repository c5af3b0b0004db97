-- What did each tenant's jobs cost, by tariff and at the market's prices, the dearest first?
-- asked by: operators
-- of: one run
SELECT
    tenant,
    job_id,
    held_gpu_seconds / 3600 AS gpu_hours,
    cost,
    market_cost,
    cost / nullif(sum(cost) OVER (), 0) AS cost_share,
    market_cost / nullif(sum(market_cost) OVER (), 0) AS market_share
FROM job_outcomes
WHERE run = getvariable('run')
ORDER BY cost DESC, market_cost DESC NULLS LAST, job_id
