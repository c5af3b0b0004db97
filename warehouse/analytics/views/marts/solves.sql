-- The solution of each round's plan, and its quality.
-- grain: one row per run and round with active jobs
-- Only a cleared window market has objective, bound, gap, price and violated guarantees. They are
-- NULL for rules, for solvers that divide time into shares, and if an earlier plan was kept. price:
-- the objective that one more GPU-round of the first GPU type would add.
SELECT
    run,
    round,
    r.clock_seconds,
    n.active_jobs AS jobs,
    solve.policy AS policy,
    solve.backend AS backend,
    solve.reason AS reason,
    solve.status AS status,
    CASE WHEN market THEN solve.objective END AS objective,
    CASE WHEN market THEN solve.bound END AS bound,
    CASE WHEN market THEN solve.gap END AS gap,
    CASE WHEN market THEN solve.prices[1].price END AS price,
    CASE WHEN market THEN solve.envious END AS envious,
    CASE WHEN market THEN solve.below_share END AS below_share,
    CASE WHEN market THEN solve.wanting END AS wanting,
    timings.solve_ms AS solve_ms
FROM (
    SELECT *, solve.status NOT IN ('rule', 'kept') AND solve.reason <> 'shares of time' AS market
    FROM round_facts
) AS r
JOIN rounds AS n USING (run, round)
WHERE n.active_jobs > 0
