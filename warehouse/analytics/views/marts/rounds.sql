-- Each scheduling round in figures.
-- grain: one row per run and round
-- clock_seconds: the round's start. idle_gpus: GPUs without a lease. stranded_gpus: idle GPUs on
-- nodes partly in use. Added or removed nodes count as of that round. The first rounds of a fork
-- have the GPUs of the run that it forked.
SELECT
    r.run,
    r.round,
    r.clock_seconds,
    lead(r.clock_seconds) OVER (PARTITION BY r.run ORDER BY r.round) - r.clock_seconds AS seconds,
    len(r.arrivals) AS arrivals,
    r.finished,
    sum(len(r.arrivals) - r.finished)
        OVER (PARTITION BY r.run ORDER BY r.round)::BIGINT AS active_jobs,
    r.running_jobs,
    r.busy_gpus,
    coalesce(
        list_sum(list_transform(
            list_filter(h.settings.forked, lambda f: r.round < f.round)[1].pools, lambda p: p.gpus
        ))::BIGINT, i.gpus
    ) + coalesce(list_sum(list_transform(
        list_filter(i.changes, lambda c: c.round <= r.round), lambda c: c.gpus
    )), 0)::BIGINT - r.busy_gpus AS idle_gpus,
    coalesce(list_sum(list_transform(
        list_distinct(list_transform(r.gpus, lambda g: i.node_of[g + 1])),
        lambda n: i.gpus_on[n + 1]
    )), 0)::BIGINT - r.busy_gpus AS stranded_gpus,
    r.preemptions,
    r.timings.collect_ms AS collect_ms,
    r.timings.predict_ms AS predict_ms,
    r.timings.solve_ms AS solve_ms,
    r.timings.dispatch_ms AS dispatch_ms,
    r.previous_hash,
    r.hash
FROM round_facts AS r
JOIN headers AS h USING (run)
JOIN inventories AS i USING (run)
