-- Forecasts of jobs; without a row, the previous forecast still holds. Simulations of policies that
-- read no forecasts have none.
-- grain: one row per run, round and job that arrived, ran in the round before, or whose forecast
-- changed because another job finished
-- Seconds are on the job's own allocation. batch_sizes: the regimes to come, the current one first.
-- epochs: those of the median trajectory in each.
SELECT
    run,
    round,
    clock_seconds,
    e.job_id AS job_id,
    e.allocation.gpu_type AS gpu_type,
    e.allocation.gpus AS scale_factor,
    e.done AS done,
    e.run_seconds AS run_seconds,
    e.remaining_seconds AS remaining_seconds,
    e.low_seconds AS low_seconds,
    e.high_seconds AS high_seconds,
    f.batch_sizes AS batch_sizes,
    f.median AS epochs
FROM (
    SELECT run, round, clock_seconds, unnest(estimates) AS e, unnest(forecasts) AS f
    FROM records
)
