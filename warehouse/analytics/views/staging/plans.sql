-- Rounds in which a plan lets each job run; 0 is the coming round, later rounds are a preview.
-- Plans of the coming round alone have no rows.
-- grain: one row per run, round and planned job
SELECT run, round, clock_seconds, t.job_id AS job_id, t.rounds AS planned_rounds, len(t.rounds) AS planned
FROM (SELECT run, round, clock_seconds, unnest(turns) AS t FROM records)
