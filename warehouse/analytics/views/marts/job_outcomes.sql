-- The outcome of each job: the only definition of JCT, finish-time fairness and a job's cost.
-- grain: one row per run and job; finish_seconds and all that depends on it is NULL while it runs
-- jct_seconds: finish − arrival. rho: JCT over the time from arrival to the job's end in the even
-- cluster (`solver/even_cluster.py`), plus one round and one restart, rounded to 5 decimals. A job
-- is unfair if rho > 1.05, and has its proportional share if rho ≤ 1: it ends no later than with an
-- even share of the cluster. utility: 1/rho, its speed over that of an even share, the job's term in
-- Nash social welfare over time (Shockwave, NSDI '23, section 4). ftf_published: JCT over isolated
-- run time × max(1, jobs of the run / GPUs), as published (section 2); it falls with the number of
-- jobs in the run, so it only serves comparison with published figures. in_time: whether the job
-- ended by its deadline; NULL without one.
-- Sums over leases add whole microseconds, so they do not depend on the order. Leases are joined
-- last: DuckDB then skips them in queries that use no such sum.
WITH held AS (
    SELECT run, job_id,
        min(start_seconds) AS start_seconds,
        sum(seconds::DECIMAL(18, 6))::DOUBLE AS held_seconds,
        sum(run_seconds::DECIMAL(18, 6))::DOUBLE AS run_seconds,
        sum(restart_seconds::DECIMAL(18, 6))::DOUBLE AS restart_seconds,
        sum(idle_seconds::DECIMAL(18, 6))::DOUBLE AS idle_seconds,
        sum(shared_seconds::DECIMAL(18, 6))::DOUBLE AS shared_seconds,
        sum(seconds::DECIMAL(18, 6)) FILTER (spread)::DOUBLE AS spread_seconds,
        sum((seconds * scale_factor)::DECIMAL(18, 6))::DOUBLE AS gang_seconds,
        sum((shared_seconds * scale_factor)::DECIMAL(18, 6))::DOUBLE AS shared_gpu_seconds,
        sum((run_seconds * scale_factor)::DECIMAL(18, 6))::DOUBLE AS run_gpu_seconds,
        sum((restart_seconds * scale_factor)::DECIMAL(18, 6))::DOUBLE AS restart_gpu_seconds,
        sum((seconds * scale_factor)::DECIMAL(18, 6)) FILTER (spread)::DOUBLE AS spread_gpu_seconds,
        sum(cost ORDER BY round) AS cost,
        sum(market_cost ORDER BY round) AS market_cost,
        count(*) FILTER (kind <> 'renewed') AS launches,
        count(*) FILTER (ended = 'preempted') AS preemptions
    FROM leases
    GROUP BY run, job_id
),
ended AS (
    SELECT run, job_id, at_seconds AS finish_seconds FROM events WHERE kind = 'finished'
),
fair AS (
    SELECT run, job_id, arg_max(fair_finish_seconds, round) AS fair_finish_seconds
    FROM fair_finishes
    GROUP BY run, job_id
),
admitted AS (
    SELECT a.run, a.job_id, r.clock_seconds AS admitted_seconds
    FROM (SELECT run, round, unnest(arrivals) AS job_id FROM round_facts) AS a
    JOIN rounds AS r USING (run, round)
)
SELECT
    j.run,
    j.job_id,
    j.name,
    j.tenant,
    j.budget,
    j.model,
    j.mode,
    j.scale_factor,
    j.arrival_seconds,
    a.admitted_seconds,
    l.start_seconds,
    e.finish_seconds,
    l.start_seconds - j.arrival_seconds AS queueing_seconds,
    e.finish_seconds - j.arrival_seconds AS jct_seconds,
    jct_seconds - least(jct_seconds, coalesce(l.held_seconds, 0)) AS waiting_seconds,
    coalesce(l.held_seconds, 0) AS held_seconds,
    coalesce(l.run_seconds, 0) AS run_seconds,
    coalesce(l.restart_seconds, 0) AS restart_seconds,
    coalesce(l.idle_seconds, 0) AS idle_seconds,
    coalesce(l.spread_seconds, 0) AS spread_seconds,
    coalesce(l.shared_seconds, 0) AS shared_seconds,
    coalesce(l.gang_seconds, 0) - coalesce(l.shared_gpu_seconds, 0) / 2 AS held_gpu_seconds,
    coalesce(l.run_gpu_seconds * (1 - l.shared_gpu_seconds / nullif(2 * l.gang_seconds, 0)), 0) AS gpu_seconds,
    coalesce(l.restart_gpu_seconds, 0) AS restart_gpu_seconds,
    coalesce(l.spread_gpu_seconds, 0) AS spread_gpu_seconds,
    coalesce(l.cost, 0) AS cost,
    l.market_cost,
    jct_seconds <= j.deadline_seconds AS in_time,
    j.isolated_seconds,
    f.fair_finish_seconds,
    round(
        jct_seconds / (f.fair_finish_seconds - j.arrival_seconds + h.round_seconds + h.restart_seconds), 5
    ) AS rho,
    rho > 1.05 AS unfair,
    rho <= 1 AS proportional,
    1 / rho AS utility,
    round(jct_seconds / (j.isolated_seconds * greatest(1, h.jobs / h.gpus)), 5) AS ftf_published,
    coalesce(l.launches, 0) AS launches,
    coalesce(l.preemptions, 0) AS preemptions
FROM jobs AS j
JOIN runs AS h USING (run)
LEFT JOIN admitted AS a USING (run, job_id)
LEFT JOIN ended AS e USING (run, job_id)
LEFT JOIN fair AS f USING (run, job_id)
LEFT JOIN held AS l USING (run, job_id)
