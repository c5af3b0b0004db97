-- Leases of jobs, with the reasons of their ends.
SELECT l.run AS run, l.job_id AS job_id, l.start_seconds AS start_seconds,
    l.end_seconds AS end_seconds, l.gpus AS gpus, l.ended AS ended, e.round AS ended_round,
    coalesce(e.reason, '') AS reason
FROM leases AS l
SEMI JOIN ({described}) USING (run, job_id)
LEFT JOIN events AS e ON e.run = l.run AND e.job_id = l.job_id AND e.kind = l.ended
    AND e.at_seconds = l.end_seconds
ORDER BY l.run, l.job_id, l.start_seconds
