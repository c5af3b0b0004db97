-- JCT of the jobs of a run, {base}, in others and in that run.
SELECT o.run, o.jct_seconds, b.jct_seconds
FROM (SELECT run, job_id, jct_seconds FROM job_outcomes) AS o
JOIN (SELECT * FROM jobs) AS j USING (run, job_id)
JOIN (SELECT run, job_id, jct_seconds FROM job_outcomes) AS b USING (job_id)
JOIN (SELECT * FROM jobs) AS k ON k.run = b.run AND k.job_id = b.job_id
WHERE b.run = '{base}' AND o.run <> b.run
    AND (j.model, j.mode, j.scale_factor, j.epochs, j.arrival_seconds)
        = (k.model, k.mode, k.scale_factor, k.epochs, k.arrival_seconds)
ORDER BY o.run, o.job_id
