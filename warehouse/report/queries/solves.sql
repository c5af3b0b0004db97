-- Prices, guarantees, gaps and wall times of plans over the time of runs.
-- Runs longer than 400 rounds are averaged over time into 400 points.
WITH numbered AS (
    SELECT *, floor(round * 400 / greatest(400, count(*) OVER (PARTITION BY run)))
        AS bucket
    FROM solves
)
SELECT run, round(min(clock_seconds) / 3600, 4) AS hours, bool_or(price IS NOT NULL) AS market,
    round(avg(price ORDER BY round), 6) AS price,
    round(avg(envious ORDER BY round), 2) AS envious,
    round(avg(below_share ORDER BY round), 2) AS below_share,
    round(100 * max(gap), 5) AS gap_percent, round(max(solve_ms), 3) AS solve_ms
FROM numbered GROUP BY run, bucket ORDER BY run, bucket
