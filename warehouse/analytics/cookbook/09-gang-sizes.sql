-- To gangs of which size does the GPU time go?
-- asked by: operators
SELECT
    scale_factor,
    count(DISTINCT (run, job_id)) AS jobs,
    sum(seconds * scale_factor) / 3600 AS gpu_hours,
    gpu_hours / sum(gpu_hours) OVER () AS share
FROM leases
GROUP BY scale_factor
ORDER BY scale_factor
