-- What did a GPU-round of each type cost hour by hour, over the mean of all types?
-- asked by: researchers
-- of: one run
SELECT
    floor(clock_seconds / 3600)::BIGINT AS hour,
    gpu_type,
    avg(price) AS mean_price,
    mean_price / nullif(avg(mean_price) OVER (PARTITION BY hour), 0) AS relative_price,
    max(price) AS highest_price
FROM prices
WHERE run = getvariable('run')
GROUP BY hour, gpu_type
ORDER BY hour, gpu_type
