-- How good are forecasts, by how far a job is and how it adapts?
-- asked by: researchers
SELECT
    r.forecasts AS made_from,
    e.mode,
    e.tenth / 10 AS done,
    sum(e.forecasts)::BIGINT AS forecasts,
    sum(e.error * e.forecasts) / sum(e.forecasts) AS mean_error,
    sum(e.bias * e.forecasts) / sum(e.forecasts) AS mean_bias,
    sum(e.covered * e.forecasts) / sum(e.forecasts) AS covered
FROM forecast_errors AS e
JOIN runs AS r USING (run)
GROUP BY made_from, e.mode, e.tenth
ORDER BY made_from, e.mode, e.tenth
