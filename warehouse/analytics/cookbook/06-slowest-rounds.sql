-- Which rounds took longest to decide, and in which step?
-- asked by: operators
-- of: one run
SELECT
    round,
    clock_seconds,
    active_jobs,
    collect_ms,
    predict_ms,
    solve_ms,
    dispatch_ms,
    collect_ms + predict_ms + solve_ms + dispatch_ms AS total_ms
FROM rounds
WHERE run = getvariable('run')
ORDER BY total_ms DESC, round
LIMIT 10
