-- Jobs as declared, with the isolated run time that fairness is measured against.
-- grain: one row per run and job
SELECT
    run,
    spec.job_id AS job_id,
    spec.model AS model,
    spec.batch_size AS batch_size,
    spec.max_batch_size AS max_batch_size,
    spec.scale_factor AS scale_factor,
    spec.mode AS mode,
    spec.epochs AS epochs,
    spec.samples_per_epoch AS samples_per_epoch,
    spec.arrival_seconds AS arrival_seconds,
    spec.tenant AS tenant,
    spec.budget AS budget,
    spec.total_steps AS total_steps,
    spec.consolidate AS consolidate,
    isolated_seconds
FROM (
    SELECT run, unnest(specs) AS spec, unnest(list_transform(truths, lambda t: t.isolated_seconds)) AS isolated_seconds
    FROM headers
)
