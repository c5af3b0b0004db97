-- When the plan of a round lets each job run; 0 is the round itself, later ones are a preview.
-- Nothing of rounds that were planned alone.
-- grain: one row per run, round and planned job
SELECT run, round, clock_seconds, t.job_id AS job_id, t.rounds AS planned_rounds, len(t.rounds) AS planned
FROM (SELECT run, round, clock_seconds, unnest(turns) AS t FROM records)
