-- What did a GPU-round cost hour by hour, and how many were asked for?
-- asked by: researchers
-- of: one run
SELECT
    floor(clock_seconds / 3600)::BIGINT AS hour,
    avg(price) AS mean_price,
    max(price) AS highest_price,
    avg(bidders) AS mean_bidders,
    avg(demand) AS mean_demand,
    sum(envious)::BIGINT AS envious
FROM prices
WHERE run = getvariable('run')
GROUP BY hour
ORDER BY hour
