-- GPUs with a lease and waiting jobs over the time of runs.
-- Runs longer than 400 rounds are averaged over time into 400 points.
WITH numbered AS (
    SELECT *, count(*) OVER (PARTITION BY run) AS of_all,
        floor(round * 400 / greatest(400, of_all)) AS bucket
    FROM rounds
    WHERE seconds > 0
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours,
    round(sum(busy_gpus * seconds) / sum((busy_gpus + idle_gpus) * seconds), 4) AS leased,
    round(sum((active_jobs - running_jobs) * seconds) / sum(seconds), 2) AS queued
FROM numbered GROUP BY run, bucket ORDER BY run, bucket
