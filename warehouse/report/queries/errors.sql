-- Forecast errors and coverage of intervals by tenths of a job's epochs.
SELECT run, tenth / 10 AS done, sum(forecasts)::BIGINT AS forecasts,
    round(sum(error * forecasts ORDER BY job_id) / sum(forecasts), 5) AS mean_error,
    round(sum(covered * forecasts ORDER BY job_id) / sum(forecasts), 5) AS covered
FROM forecast_errors GROUP BY run, tenth ORDER BY run, tenth
