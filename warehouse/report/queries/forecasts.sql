-- Forecasts of jobs against what they took, in hours: at most 20 per job, evenly spaced.
SELECT run, job_id, round(trained / 3600, 4) AS trained, round(forecast / 3600, 4) AS forecast,
    round(low / 3600, 4) AS low, round(high / 3600, 4) AS high, round(truth / 3600, 4) AS truth
FROM (
    SELECT f.run AS run, f.job_id AS job_id, f.round AS round, f.run_seconds AS trained,
        remaining_seconds AS forecast, low_seconds AS low, high_seconds AS high,
        CASE WHEN o.finish_seconds IS NOT NULL THEN o.run_seconds - f.run_seconds END AS truth,
        row_number() OVER (PARTITION BY f.run, f.job_id ORDER BY f.round) - 1 AS number,
        greatest(1, count(*) OVER (PARTITION BY f.run, f.job_id) - 1) AS of_all
    FROM (FROM forecasts SEMI JOIN ({described}) USING (run, job_id)) AS f
    JOIN job_outcomes AS o USING (run, job_id)
)
WHERE number IN (0, of_all)
    OR number * 19 // of_all > (number - 1) * 19 // of_all
ORDER BY run, job_id, round
