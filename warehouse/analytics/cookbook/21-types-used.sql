-- Who ran on what, against where he is fastest?
-- asked by: researchers
-- of: one run
WITH rates AS (
    SELECT run, p.model AS model, p.batch_size AS batch_size, p.gpus AS scale_factor,
        p.gpu_type AS gpu_type, p.steps_per_second AS rate
    FROM (SELECT run, unnest(profile) AS p FROM headers)
),
best AS (
    SELECT run, model, batch_size, scale_factor,
        arg_max(gpu_type, rate) AS fastest, max(rate) AS rate
    FROM rates
    GROUP BY ALL
),
held AS (
    SELECT l.*, coalesce(b.fastest, l.gpu_type) AS fastest, coalesce(r.rate / b.rate, 1.0) AS speed
    FROM leases AS l
    JOIN jobs AS j USING (run, job_id)
    LEFT JOIN best AS b
        ON b.run = l.run AND b.model = j.model AND b.batch_size = j.batch_size
        AND b.scale_factor = l.scale_factor
    LEFT JOIN rates AS r
        ON r.run = l.run AND r.model = j.model AND r.batch_size = j.batch_size
        AND r.scale_factor = l.scale_factor AND r.gpu_type = l.gpu_type
    WHERE l.run = getvariable('run')
)
SELECT
    fastest,
    gpu_type,
    count(DISTINCT job_id) AS jobs,
    sum(seconds * scale_factor) / 3600 AS gpu_hours,
    gpu_hours / sum(gpu_hours) OVER (PARTITION BY fastest) AS share,
    sum(speed * seconds * scale_factor) / sum(seconds * scale_factor) AS mean_speed,
    sum(cost) AS cost
FROM held
GROUP BY fastest, gpu_type
ORDER BY fastest, gpu_type
