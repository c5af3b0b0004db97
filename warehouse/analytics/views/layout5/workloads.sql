-- Jobs and truths of layouts 3 to 5, which are in the headers, as the present one has them.
-- grain: one row per run and job
SELECT
    run,
    {
        'job_id': s.job_id,
        'model': s.model,
        'batch_size': s.batch_size,
        'max_batch_size': s.max_batch_size,
        'demand': {'least': s.scale_factor, 'most': s.scale_factor, 'types': []::VARCHAR[]},
        'mode': s.mode,
        'epochs': s.epochs,
        'samples_per_epoch': s.samples_per_epoch,
        'arrival_seconds': s.arrival_seconds,
        'tenant': s.tenant,
        'budget': s.budget,
        'total_steps': s.total_steps,
        'consolidate': s.consolidate,
        'kind': 'adaptive',
        'name': '',
        'options': {'deadline_seconds': 0.0}
    } AS spec,
    truth
FROM (SELECT run, unnest(specs) AS s, unnest(truths) AS truth FROM {stored})
