-- Outcomes of jobs, and the rounds that admitted them.
SELECT o.*, r.round AS admitted_round
FROM job_outcomes AS o
LEFT JOIN rounds AS r ON r.run = o.run AND r.clock_seconds = o.admitted_seconds
ORDER BY o.run, job_id
