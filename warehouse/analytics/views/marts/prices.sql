-- What a GPU-round cost in each round's market, beside how many wanted one.
-- grain: one row per run and round with bids
-- asked_gpus: what all bidding jobs would hold at once. price_change: against the round before
-- that had a market.
SELECT
    run,
    round,
    s.clock_seconds,
    s.price,
    s.price - lag(s.price) OVER (PARTITION BY run ORDER BY round) AS price_change,
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
    SELECT run, round, len(bids) AS bidders,
        list_sum(list_transform(bids, lambda b: b.scale_factor))::BIGINT AS asked_gpus
    FROM records
    WHERE len(bids) > 0
) AS b USING (run, round)
WHERE s.price IS NOT NULL
