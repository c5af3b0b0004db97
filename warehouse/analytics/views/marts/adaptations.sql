-- How each job changed its batch size, as far as reports show.
-- grain: one row per run and job with a reported epoch
-- changes: number of reports whose batch size differs from the report before. growth: largest over
-- smallest batch size.
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
