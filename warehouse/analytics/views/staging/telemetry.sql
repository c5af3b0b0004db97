-- Consecutive epochs completed at one batch size, by the round at whose start they were observed.
-- grain: one row per run and report
SELECT run, round, clock_seconds, t.*
FROM (SELECT run, round, clock_seconds, unnest(reports) AS t FROM records)
