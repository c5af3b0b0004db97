-- Bids of active jobs in the market of the coming round.
-- grain: one row per run, round, bidding job and allocation that it bid on
SELECT
    run,
    round,
    clock_seconds,
    b.job_id AS job_id,
    b.allocation.gpu_type AS gpu_type,
    b.allocation.gpus AS scale_factor,
    b.weight AS weight,
    b.utility AS utility
FROM (SELECT run, round, clock_seconds, unnest(bids) AS b FROM records)
