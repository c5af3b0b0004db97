-- GPU-hours of runs and their cost, in the currency of the prices.
SELECT run, sum(cost::DECIMAL(18, 6))::DOUBLE AS cost,
    sum((scale_factor * (seconds - shared_seconds / 2))::DECIMAL(18, 6))::DOUBLE / 3600 AS gpu_hours
FROM leases GROUP BY run
