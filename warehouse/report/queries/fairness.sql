-- ρ of the finished jobs by tenant, GPUs, model, and load of the cluster when the job came.
-- place: order of the values of a property.
WITH finished AS (
    SELECT o.*, r.active_jobs / nullif(r.busy_gpus + r.idle_gpus, 0) AS load
    FROM job_outcomes AS o
    LEFT JOIN rounds AS r ON r.run = o.run AND r.clock_seconds = o.admitted_seconds
    WHERE rho IS NOT NULL
),
classed AS (
    SELECT *, CASE
        WHEN load IS NULL THEN {'name': 'unknown', 'place': 6}
        WHEN load < 0.5 THEN {'name': 'below 0.5', 'place': 0}
        WHEN load < 1 THEN {'name': '0.5 to 1', 'place': 1}
        WHEN load < 1.5 THEN {'name': '1 to 1.5', 'place': 2}
        WHEN load < 2 THEN {'name': '1.5 to 2', 'place': 3}
        WHEN load < 4 THEN {'name': '2 to 4', 'place': 4}
        ELSE {'name': '4 and more', 'place': 5}
    END AS class
    FROM finished
),
grouped AS (
    SELECT *, unnest([
        {'by': 'tenant', 'kind': tenant, 'place': 0},
        {'by': 'size', 'kind': scale_factor::VARCHAR, 'place': scale_factor},
        {'by': 'model', 'kind': model, 'place': 0},
        {'by': 'load', 'kind': class.name, 'place': class.place}
    ]) AS g
    FROM classed
)
SELECT run, g.by AS "by", g.kind AS kind, count(*) AS jobs,
    round(min(rho), 4) AS least_rho,
    round(quantile_cont(rho, 0.25), 4) AS quarter,
    round(quantile_cont(rho, 0.5), 4) AS median_rho,
    round(quantile_cont(rho, 0.75), 4) AS three_quarters,
    round(max(rho), 4) AS worst_rho,
    round(100 * avg(unfair::INT), 4) AS unfair_percent,
    round(sum(jct_seconds::DECIMAL(18, 6))::DOUBLE / count(*) / 3600, 4) AS mean_jct_hours,
    round(sum(held_gpu_seconds::DECIMAL(18, 6))::DOUBLE / 3600, 4) AS gpu_hours
FROM grouped
GROUP BY run, g ORDER BY run, "by", g.place, kind
