-- Jobs as declared, with their isolated run times, the base of fairness.
-- grain: one row per run and job
-- submitter: who submitted it to a service; NULL for jobs of traces.
-- scale_factor: the GPUs of the job's gang; the least of its demand unless it was tuned.
SELECT
    run,
    spec.job_id AS job_id,
    spec.name AS name,
    spec.kind AS kind,
    spec.model AS model,
    spec.batch_size AS batch_size,
    spec.max_batch_size AS max_batch_size,
    CASE spec.demand.tuned WHEN 0 THEN spec.demand.least ELSE spec.demand.tuned END AS scale_factor,
    spec.demand.most AS most_gpus,
    spec.demand.types AS gpu_types,
    spec.mode AS mode,
    spec.epochs AS epochs,
    spec.samples_per_epoch AS samples_per_epoch,
    spec.arrival_seconds AS arrival_seconds,
    spec.tenant AS tenant,
    spec.budget AS budget,
    spec.total_steps AS total_steps,
    spec.consolidate AS consolidate,
    nullif(spec.options.deadline_seconds, 0) AS deadline_seconds,
    truth.isolated_seconds AS isolated_seconds,
    nullif(submitter, '') AS submitter
FROM {workloads}
