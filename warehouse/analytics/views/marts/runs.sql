-- Settings and progress of each run.
-- grain: one row per run
-- workload: equal for equal jobs. Jobs of services arrive later and resemble no other run's, so a
-- service's workload is the run's own name.
SELECT
    h.run,
    h.created_at,
    h.settings.policy AS policy,
    h.settings.backend AS asked_backend,
    h.source AS trace,
    if(starts_with(h.run, 'service-'), h.run, h.workload) AS workload,
    h.settings.fidelity AS fidelity,
    h.settings.parameters AS parameters,
    i.gpus AS gpus,
    h.settings.pools[1].gpus_per_node AS gpus_per_node,
    h.settings.pools AS pools,
    coalesce(j.jobs, 0) AS jobs,
    h.settings.round_seconds AS round_seconds,
    h.settings.restart_seconds AS restart_seconds,
    h.settings."window" AS window_rounds,
    h.settings.forecasts AS forecasts,
    len(h.history) AS history_jobs,
    h.settings.seed AS seed,
    coalesce(r.finished, 0) = coalesce(j.jobs, 0) AS complete,
    h.hash AS first_hash,
    r.last_hash,
    h.packages
FROM headers AS h
JOIN inventories AS i USING (run)
LEFT JOIN (SELECT run, count(*) AS jobs FROM jobs GROUP BY run) AS j USING (run)
LEFT JOIN (
    SELECT run, sum(finished) AS finished, arg_max(hash, round) AS last_hash
    FROM round_facts
    GROUP BY run
) AS r USING (run)
