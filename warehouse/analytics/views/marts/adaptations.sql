-- How each job changed its batch size, as far as it was seen.
-- grain: one row per run and job of which an epoch was reported
-- changes: reports of another batch size than the report before. growth: the largest batch size
-- over the smallest.
SELECT
    run,
    job_id,
    any_value(j.model) AS model,
    any_value(j.mode) AS mode,
    sum(t.epochs)::BIGINT AS epochs,
    count(*) FILTER (t.batch_size <> t.was) AS changes,
    min(t.batch_size) AS least_batch_size,
    max(t.batch_size) AS most_batch_size,
    max(t.batch_size) / min(t.batch_size) AS growth
FROM (
    SELECT run, job_id, epochs, batch_size,
        lag(batch_size) OVER (PARTITION BY run, job_id ORDER BY epoch) AS was
    FROM telemetry
) AS t
JOIN jobs AS j USING (run, job_id)
GROUP BY run, job_id
