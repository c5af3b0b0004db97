-- Which tenants take GPUs from which, and how many?
-- asked by: operators
WITH pairs AS (
    SELECT run, round, job_id, tenant, unnest(preemptors) AS preemptor
    FROM preemptions
)
SELECT
    r.policy,
    p.tenant AS loses,
    j.tenant AS gains,
    count(DISTINCT (p.run, p.round, p.job_id)) AS preemptions,
    count(DISTINCT p.run) AS runs
FROM pairs AS p
JOIN jobs AS j ON j.run = p.run AND j.job_id = p.preemptor
JOIN runs AS r ON r.run = p.run
GROUP BY r.policy, loses, gains
ORDER BY r.policy, preemptions DESC, loses, gains
