-- Prices by GPU type over the time of runs.
-- Runs longer than 400 rounds are averaged over time into 400 points.
WITH numbered AS (
    SELECT *, floor(round * 400 / greatest(400, max(round) OVER (PARTITION BY run)))
        AS bucket
    FROM prices
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours, gpu_type AS label,
    round(avg(price ORDER BY round), 6) AS price
FROM numbered GROUP BY run, bucket, gpu_type ORDER BY run, gpu_type, bucket
