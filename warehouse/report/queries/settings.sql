-- Settings of runs, and versions of packages.
SELECT run, policy, fidelity, parameters, asked_backend AS backend, round_seconds,
    restart_seconds, window_rounds, seed, trace, gpus, pools, gpus_per_node, packages, first_hash,
    settings.forecasts AS forecasts
FROM runs JOIN (SELECT run, settings FROM headers) USING (run)
