-- How each round's plan was found and how good it is, as laid out.
-- grain: one row per run and round with active jobs
-- price is the objective that one more GPU-round in the window would bring.
SELECT
    run,
    round,
    r.clock_seconds,
    n.active_jobs AS jobs,
    solve.*,
    timings.solve_ms AS solve_ms
FROM records AS r
JOIN rounds AS n USING (run, round)
WHERE n.active_jobs > 0
