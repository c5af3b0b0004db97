-- Headers of layouts 3 to 5, in the columns of the present one.
-- grain: one row per run
SELECT
    run,
    created_at,
    packages,
    hash,
    version,
    {
        'policy': settings.policy,
        'pools': [{'gpu_type': 'gpu', 'gpus': settings.gpus, 'gpus_per_node': settings.gpus_per_node}],
        'fidelity': settings.fidelity,
        'parameters': settings.parameters,
        'backend': settings.backend,
        'round_seconds': settings.round_seconds,
        'restart_seconds': settings.restart_seconds,
        'window': settings."window",
        'forecasts': settings.forecasts,
        'seed': settings.seed,
        'forked': list_transform(coalesce(settings.forked, []), lambda f: {
            'run': f.run,
            'hash': f.hash,
            'round': f.round,
            'pools': [{'gpu_type': 'gpu', 'gpus': f.gpus, 'gpus_per_node': settings.gpus_per_node}],
            'policy': f.policy,
            'parameters': f.parameters
        }),
        'runtime': coalesce(settings.runtime, 'virtual')
    } AS settings,
    source,
    '' AS workload,
    list_transform(profile, lambda p: {
        'model': p.model,
        'batch_size': p.batch_size,
        'gpu_type': 'gpu',
        'gpus': p.scale_factor,
        'steps_per_second': p.steps_per_second
    }) AS profile,
    list_transform(history, lambda h: {
        'spec': {
            'job_id': h.spec.job_id,
            'model': h.spec.model,
            'batch_size': h.spec.batch_size,
            'max_batch_size': h.spec.max_batch_size,
            'demand': {'least': h.spec.scale_factor, 'most': h.spec.scale_factor, 'types': []::VARCHAR[]},
            'mode': h.spec.mode,
            'epochs': h.spec.epochs,
            'samples_per_epoch': h.spec.samples_per_epoch,
            'arrival_seconds': h.spec.arrival_seconds,
            'tenant': h.spec.tenant,
            'budget': h.spec.budget,
            'total_steps': h.spec.total_steps,
            'consolidate': h.spec.consolidate
        },
        'observed': h.observed,
        'paces': h.paces
    }) AS history
FROM {stored}
