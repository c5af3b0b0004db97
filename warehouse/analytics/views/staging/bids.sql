-- The bids of the active jobs in the market.
-- grain: one row per run, round, bidding job and allocation that it bid on
-- The market is of the coming round; of the window with `preview` and under `shockwave-published`.
-- utility and remaining_seconds are tables over 0, 1, … rounds.
SELECT
    run,
    round,
    clock_seconds,
    job_id,
    r.allocation.gpu_type AS gpu_type,
    r.allocation.gpus AS scale_factor,
    weight,
    r.utility AS utility,
    r.remaining_seconds AS remaining_seconds
FROM (
    SELECT run, round, clock_seconds, b.job_id AS job_id, b.weight AS weight, unnest(b.rows) AS r
    FROM (SELECT run, round, clock_seconds, unnest(bids) AS b FROM records)
)
