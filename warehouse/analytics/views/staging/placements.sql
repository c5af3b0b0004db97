-- GPUs held by each running job.
-- grain: one row per run, round and running job
SELECT
    run,
    round,
    clock_seconds,
    l.job_id AS job_id,
    l.gpus AS gpus,
    len(l.gpus) AS scale_factor,
    coalesce(list_filter(events, lambda e: e.job_id = l.job_id AND e.kind <> 'preempted')[1].kind, 'renewed') AS launched_as
FROM (SELECT run, round, clock_seconds, events, unnest(leases) AS l FROM records)
