-- How far is each run, those under way first?
-- asked by: operators
SELECT
    s.run,
    s.policy,
    s.complete,
    s.jobs,
    t.finished,
    s.rounds,
    s.makespan_s AS clock_s,
    r.created_at
FROM run_summary AS s
JOIN runs AS r USING (run)
JOIN (SELECT run, sum(finished)::BIGINT AS finished FROM tenant_summary GROUP BY run) AS t USING (run)
ORDER BY s.complete, r.created_at DESC, s.run
