-- Outcomes of the jobs that the report describes, and the rounds that admitted them.
SELECT o.*, r.round AS admitted_round
FROM job_outcomes AS o
SEMI JOIN ({described}) USING (run, job_id)
LEFT JOIN rounds AS r ON r.run = o.run AND r.clock_seconds = o.admitted_seconds
ORDER BY o.run, job_id
