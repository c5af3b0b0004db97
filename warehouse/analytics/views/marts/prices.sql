-- The price of a GPU-round in each round's market, beside the demand.
-- grain: one row per run, round with bids and GPU type
-- asked_gpus: GPUs of all bidding jobs together. asked_gpus, gpus and demand cover all GPU types.
-- price_change: difference to the previous round with a market.
SELECT
    run,
    round,
    s.clock_seconds,
    p.gpu_type,
    p.price,
    p.price - lag(p.price) OVER (PARTITION BY run, p.gpu_type ORDER BY round) AS price_change,
    b.bidders,
    b.asked_gpus,
    n.busy_gpus + n.idle_gpus AS gpus,
    b.asked_gpus / gpus AS demand,
    s.envious,
    s.below_share,
    s.wanting
FROM solves AS s
JOIN rounds AS n USING (run, round)
JOIN (
    SELECT run, round, bidders, asked_gpus
    FROM round_facts
    WHERE bidders > 0
) AS b USING (run, round)
JOIN (
    SELECT run, round, p.gpu_type AS gpu_type, p.price AS price
    FROM (SELECT run, round, unnest(solve.prices) AS p FROM round_facts)
) AS p USING (run, round)
