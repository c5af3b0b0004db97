-- Each run's headline figures. The one definition of makespan, unfair fraction and utilisation.
-- grain: one row per run; figures cover what has happened so far
-- utilization: GPU time spent training (restarts excluded) over GPUs × makespan.
-- rounds counts those in which a job ran; solve times are of rounds with active jobs.
SELECT
    h.run,
    h.policy,
    h.fidelity,
    h.trace,
    h.gpus,
    h.jobs,
    h.complete,
    r.makespan_s,
    o.mean_jct_s,
    o.worst_ftf,
    o.unfair_fraction,
    o.worst_ftf_themis,
    o.unfair_fraction_themis,
    o.gpu_seconds / nullif(h.gpus * r.makespan_s, 0) AS utilization,
    r.rounds,
    o.preemptions,
    s.solve_ms_p50,
    s.solve_ms_p95,
    s.solve_ms_max,
    s.max_gap,
    h.last_hash
FROM runs AS h
LEFT JOIN (
    SELECT run, max(clock_seconds) AS makespan_s, count(*) FILTER (running_jobs > 0) AS rounds
    FROM rounds
    GROUP BY run
) AS r USING (run)
LEFT JOIN (
    SELECT
        run,
        avg(jct_seconds) AS mean_jct_s,
        max(ftf) AS worst_ftf,
        avg(unfair::INT) AS unfair_fraction,
        max(ftf_themis) AS worst_ftf_themis,
        avg(unfair_themis::INT) AS unfair_fraction_themis,
        sum(gpu_seconds) AS gpu_seconds,
        sum(preemptions)::BIGINT AS preemptions
    FROM job_outcomes
    GROUP BY run
) AS o USING (run)
LEFT JOIN (
    SELECT
        run,
        quantile_cont(solve_ms, 0.5) AS solve_ms_p50,
        quantile_cont(solve_ms, 0.95) AS solve_ms_p95,
        max(solve_ms) AS solve_ms_max,
        max(gap) AS max_gap
    FROM solves
    GROUP BY run
) AS s USING (run)
