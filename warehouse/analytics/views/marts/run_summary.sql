-- Each run's headline figures. The only definition of makespan, utilisation and fragmentation.
-- grain: one row per run; figures cover what has happened so far
-- utilization: GPU time spent training (without restarts) over GPUs × makespan; of a fork, over the
-- GPUs of each round.
-- nash_welfare: Nash social welfare over time, the geometric mean of the finished jobs' utilities,
-- weighted by budget (Shockwave, NSDI '23, section 4).
-- makespan_bound_s: lower bound of any schedule of the finished jobs, without restarts and waiting.
-- None ends before the last job could end alone, or before all GPUs could do the work that arrives
-- after any moment. NULL for several GPU types, because isolated run times are at the mean of their
-- rates, and for elastic jobs, which may take less GPU time on fewer GPUs.
-- restart_share: part of the leased GPU time lost to starting and resuming.
-- spread_share: part of the leased GPU time on more nodes than the gang needs. stranded_share: GPU
-- time idle on nodes partly in use, over the same GPU time. Both are 0 with one GPU per node.
-- Sums run in order of job ids or rounds, because another order would change their last digits.
-- rounds: recorded rounds, as in an audit. Solve times cover rounds with active jobs.
SELECT
    h.run,
    h.policy,
    h.fidelity,
    h.trace,
    h.gpus,
    h.jobs,
    h.complete,
    r.makespan_s,
    b.makespan_bound_s,
    o.mean_jct_s,
    o.jct_p50_s,
    o.jct_p95_s,
    o.jct_p99_s,
    o.mean_queueing_s,
    o.mean_waiting_s,
    o.worst_rho,
    o.rho_p50,
    o.rho_p90,
    o.rho_p95,
    o.rho_p99,
    o.unfair_fraction,
    o.worst_ftf_published,
    o.unfair_fraction_published,
    o.nash_welfare,
    o.proportionality_violations,
    e.envy_violations,
    e.worst_envy,
    o.gpu_seconds / nullif(r.there_gpu_seconds, 0) AS utilization,
    o.held_gpu_seconds / 3600 AS gpu_hours,
    o.gpu_seconds / 3600 AS gpu_hours_trained,
    o.cost,
    o.market_cost,
    o.restart_gpu_seconds / nullif(o.held_gpu_seconds, 0) AS restart_share,
    o.spread_gpu_seconds / nullif(o.held_gpu_seconds, 0) AS spread_share,
    r.stranded_gpu_seconds / nullif(r.there_gpu_seconds, 0) AS stranded_share,
    r.rounds,
    o.launches,
    o.preemptions,
    o.restart_s,
    o.idle_s,
    s.solve_ms_p50,
    s.solve_ms_p95,
    s.solve_ms_max,
    s.max_gap,
    h.last_hash
FROM runs AS h
LEFT JOIN (
    SELECT
        run,
        max(clock_seconds) AS makespan_s,
        coalesce(sum(stranded_gpus * seconds ORDER BY round), 0) AS stranded_gpu_seconds,
        any_value(gpus) * makespan_s + coalesce(sum(
            (busy_gpus + idle_gpus - gpus) * seconds ORDER BY round
        ), 0) AS there_gpu_seconds,
        count(*) AS rounds
    FROM rounds
    JOIN (SELECT run, gpus FROM runs) USING (run)
    GROUP BY run
) AS r USING (run)
LEFT JOIN (
    SELECT
        run,
        avg(jct_seconds ORDER BY job_id) AS mean_jct_s,
        quantile_cont(jct_seconds, 0.5) AS jct_p50_s,
        quantile_cont(jct_seconds, 0.95) AS jct_p95_s,
        quantile_cont(jct_seconds, 0.99) AS jct_p99_s,
        avg(queueing_seconds ORDER BY job_id) AS mean_queueing_s,
        avg(waiting_seconds ORDER BY job_id) AS mean_waiting_s,
        max(rho) AS worst_rho,
        quantile_cont(rho, 0.5) AS rho_p50,
        quantile_cont(rho, 0.9) AS rho_p90,
        quantile_cont(rho, 0.95) AS rho_p95,
        quantile_cont(rho, 0.99) AS rho_p99,
        avg(unfair::INT) AS unfair_fraction,
        max(ftf_published) AS worst_ftf_published,
        avg((ftf_published > 1.05)::INT) AS unfair_fraction_published,
        exp(
            sum(budget * ln(utility) ORDER BY job_id)
            / sum(budget ORDER BY job_id) FILTER (utility IS NOT NULL)
        ) AS nash_welfare,
        sum((NOT proportional)::INT)::BIGINT AS proportionality_violations,
        sum(gpu_seconds ORDER BY job_id) AS gpu_seconds,
        sum(held_gpu_seconds ORDER BY job_id) AS held_gpu_seconds,
        sum(cost ORDER BY job_id) AS cost,
        sum(market_cost ORDER BY job_id) AS market_cost,
        sum(restart_gpu_seconds ORDER BY job_id) AS restart_gpu_seconds,
        sum(spread_gpu_seconds ORDER BY job_id) AS spread_gpu_seconds,
        sum(launches)::BIGINT AS launches,
        sum(preemptions)::BIGINT AS preemptions,
        sum(restart_seconds ORDER BY job_id) AS restart_s,
        sum(idle_seconds ORDER BY job_id) AS idle_s
    FROM job_outcomes
    GROUP BY run
) AS o USING (run)
LEFT JOIN (
    SELECT run, greatest(
        max(arrival_seconds + isolated_seconds), max(arrival_seconds + later_gpu_seconds / most_gpus)
    ) AS makespan_bound_s
    FROM (
        SELECT run, arrival_seconds, isolated_seconds, sum(isolated_seconds * scale_factor) OVER (
            PARTITION BY run ORDER BY arrival_seconds DESC, job_id
        ) AS later_gpu_seconds
        FROM job_outcomes
        WHERE finish_seconds IS NOT NULL
            AND run NOT IN (SELECT run FROM jobs WHERE most_gpus > jobs.scale_factor)
    )
    JOIN (
        SELECT run
        FROM headers
        JOIN inventories USING (run)
        WHERE len(list_distinct(list_concat(type_of, flatten(list_transform(
            list_append(list_transform(settings.forked, lambda f: f.pools), settings.pools),
            lambda c: list_transform(c, lambda p: p.gpu_type)
        ))))) = 1
    ) USING (run)
    JOIN (SELECT run, max(busy_gpus + idle_gpus) AS most_gpus FROM rounds GROUP BY run) USING (run)
    GROUP BY run
) AS b USING (run)
LEFT JOIN (
    SELECT run, sum(envious::INT)::BIGINT AS envy_violations, max(envy) AS worst_envy
    FROM envy
    GROUP BY run
) AS e USING (run)
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
