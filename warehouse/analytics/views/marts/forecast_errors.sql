-- Forecast errors by progress of the job.
-- grain: one row per run, finished job and tenth of its epochs done
-- error: mean of |forecast − true| run time of the whole job, over the true one. bias: the same
-- with its sign; positive forecasts were too long. covered: share of the forecasts whose 80 %
-- interval held the truth. Only forecasts made while the job was active count.
SELECT
    f.run,
    f.job_id,
    any_value(o.model) AS model,
    any_value(o.mode) AS mode,
    least(floor(f.done * 10), 9)::BIGINT AS tenth,
    count(*) AS forecasts,
    avg(abs(f.run_seconds + f.remaining_seconds - o.run_seconds) ORDER BY f.round)
        / any_value(o.run_seconds) AS error,
    avg(f.run_seconds + f.remaining_seconds - o.run_seconds ORDER BY f.round)
        / any_value(o.run_seconds) AS bias,
    avg((o.run_seconds BETWEEN f.run_seconds + f.low_seconds - 1e-6
        AND f.run_seconds + f.high_seconds + 1e-6)::INT) AS covered
FROM forecasts AS f
JOIN job_outcomes AS o USING (run, job_id)
WHERE o.finish_seconds IS NOT NULL AND o.run_seconds > 0
GROUP BY f.run, f.job_id, tenth
