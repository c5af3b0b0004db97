-- What each active job bid in the window market.
-- grain: one row per run, round and bidding job
-- utility and remaining_seconds are tables over 0, 1, … rounds.
SELECT run, round, clock_seconds, b.*
FROM (SELECT run, round, clock_seconds, unnest(bids) AS b FROM records)
