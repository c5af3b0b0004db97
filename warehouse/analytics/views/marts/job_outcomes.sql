-- The outcome of each job: the only definition of JCT, finish-time fairness and a job's cost.
-- grain: one row per run and job; finish_seconds and all that depends on it is NULL while it runs
-- jct_seconds: finish − arrival. ftf (ρ): JCT over isolated run time × contention factor, max(1,
-- jobs of the run / reference GPUs) (Shockwave, NSDI '23, section 2). ftf_themis: the same with the
-- mean number of active jobs from admission to finish (Themis, NSDI '20). ρ is rounded to 5
-- decimals. A job is unfair if ρ > 1.05, and has its proportional share if ρ ≤ 1: it ends no later
-- than with an equal share of the cluster. utility: its speed over that of an equal share, 1/ρ, the
-- job's term in Nash social welfare over time (Shockwave, section 4). in_time: whether it ended by
-- its deadline; NULL without one.
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
        sum(cost ORDER BY round) AS cost,
        sum(market_cost ORDER BY round) AS market_cost,
        count(*) FILTER (kind <> 'renewed') AS launches,
        count(*) FILTER (ended = 'preempted') AS preemptions
    FROM leases
    GROUP BY run, job_id
),
-- Unless materialised, the arrivals would first be joined with all rounds of their run.
active AS (
    WITH load AS (
        SELECT run, round, clock_seconds,
            coalesce(sum(active_jobs) OVER (
                PARTITION BY run ORDER BY round ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
            ), 0) AS active_before
        FROM rounds
    ),
    admitted AS MATERIALIZED (
        SELECT run, job_id, a.round, b.clock_seconds, b.active_before
        FROM (SELECT run, round, unnest(arrivals) AS job_id FROM round_facts) AS a
        JOIN load AS b USING (run, round)
    )
    SELECT a.run, a.job_id, a.clock_seconds AS admitted_seconds, f.at_seconds AS finish_seconds,
        (e.active_before - a.active_before) / (e.round - a.round) AS mean_active_jobs
    FROM admitted AS a
    LEFT JOIN events AS f ON f.run = a.run AND f.job_id = a.job_id AND f.kind = 'finished'
    LEFT JOIN load AS e ON e.run = a.run AND e.round = f.round
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
    a.finish_seconds,
    l.start_seconds - j.arrival_seconds AS queueing_seconds,
    a.finish_seconds - j.arrival_seconds AS jct_seconds,
    jct_seconds - least(jct_seconds, coalesce(l.held_seconds, 0)) AS waiting_seconds,
    coalesce(l.held_seconds, 0) AS held_seconds,
    coalesce(l.run_seconds, 0) AS run_seconds,
    coalesce(l.restart_seconds, 0) AS restart_seconds,
    coalesce(l.idle_seconds, 0) AS idle_seconds,
    coalesce(l.spread_seconds, 0) AS spread_seconds,
    coalesce(l.shared_seconds, 0) AS shared_seconds,
    (coalesce(l.held_seconds, 0) - coalesce(l.shared_seconds, 0) / 2) * j.scale_factor AS held_gpu_seconds,
    coalesce(l.run_seconds * (1 - l.shared_seconds / nullif(2 * l.held_seconds, 0)), 0) * j.scale_factor AS gpu_seconds,
    coalesce(l.cost, 0) AS cost,
    l.market_cost,
    jct_seconds <= j.deadline_seconds AS in_time,
    j.isolated_seconds,
    round(jct_seconds / (j.isolated_seconds * greatest(1, h.jobs / h.reference_gpus)), 5) AS ftf,
    round(jct_seconds / (j.isolated_seconds * greatest(1, a.mean_active_jobs / h.reference_gpus)), 5) AS ftf_themis,
    ftf > 1.05 AS unfair,
    ftf_themis > 1.05 AS unfair_themis,
    ftf <= 1 AS proportional,
    1 / ftf AS utility,
    coalesce(l.launches, 0) AS launches,
    coalesce(l.preemptions, 0) AS preemptions
FROM jobs AS j
JOIN runs AS h USING (run)
LEFT JOIN active AS a USING (run, job_id)
LEFT JOIN held AS l USING (run, job_id)
