-- Rounds of layouts 3 to 5, in the columns of the present one as the views read it.
-- grain: one row per run and round, or two while a run is being compacted
-- Forecasts were kept in seconds only, and prices for all GPUs alike.
SELECT
    run,
    hash,
    timings,
    version,
    round,
    clock_seconds,
    arrivals,
    finished,
    reports,
    progress,
    [] AS forecasts,
    list_transform(forecasts, lambda f: {
        'job_id': f.job_id,
        'allocation': NULL,
        'done': f.progress[1],
        'run_seconds': f.run_seconds,
        'remaining_seconds': f.remaining_seconds,
        'low_seconds': f.low_seconds,
        'high_seconds': f.high_seconds
    }) AS estimates,
    list_transform(bids, lambda b: {
        'job_id': b.job_id,
        'weight': b.weight,
        'rows': [{
            'allocation': {'gpu_type': 'gpu', 'gpus': b.scale_factor, 'nodes': NULL, 'shared_with': []::BIGINT[]},
            'utility': b.utility,
            'remaining_seconds': b.remaining_seconds
        }]
    }) AS bids,
    {
        'policy': solve.policy,
        'backend': solve.backend,
        'reason': solve.reason,
        'status': solve.status,
        'objective': solve.objective,
        'bound': solve.bound,
        'gap': solve.gap,
        'prices': CASE WHEN solve.status NOT IN ('rule', 'kept') AND solve.reason <> 'shares of time'
            THEN [{'gpu_type': 'gpu', 'price': solve.price}] ELSE [] END,
        'envious': solve.envious,
        'below_share': solve.below_share,
        'wanting': solve.wanting,
        'drained': coalesce(solve.drained, [])
    } AS solve,
    turns,
    memory,
    launches AS leases,
    events,
    previous_hash
FROM {stored}
