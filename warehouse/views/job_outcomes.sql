-- How each job fared. The one definition of JCT and of finish-time fairness.
-- grain: one row per run and job; finish_seconds and what follows from it is NULL while it runs
-- jct_seconds: finish − arrival. ftf (ρ): JCT over isolated run time times the contention
-- factor max(1, jobs of the run / GPUs) (Shockwave, NSDI '23, section 2). ftf_themis: the same
-- with the mean number of active jobs from admission to finish (Themis, NSDI '20). A job is
-- unfair when ρ > 1.05; ρ is rounded to 5 decimals first.
WITH ends AS (
    SELECT run, job_id, max(at_seconds) FILTER (kind = 'finished') AS finish_seconds,
        min(at_seconds) FILTER (kind = 'started') AS start_seconds,
        count(*) FILTER (kind = 'preempted') AS preemptions
    FROM events
    GROUP BY run, job_id
),
load AS (
    SELECT run, round, clock_seconds,
        coalesce(sum(active_jobs) OVER (
            PARTITION BY run ORDER BY round ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
        ), 0) AS active_before
    FROM rounds
),
active AS (
    SELECT a.run, a.job_id, b.clock_seconds AS admitted_seconds,
        (e.active_before - b.active_before) / (e.round - b.round) AS mean_active_jobs
    FROM (SELECT run, round, unnest(arrivals) AS job_id FROM records) AS a
    JOIN load AS b ON b.run = a.run AND b.round = a.round
    LEFT JOIN events AS f ON f.run = a.run AND f.job_id = a.job_id AND f.kind = 'finished'
    LEFT JOIN load AS e ON e.run = a.run AND e.round = f.round
),
ran AS (
    SELECT run, p.job_id AS job_id, max(p.run_seconds) AS run_seconds
    FROM (SELECT run, unnest(progress) AS p FROM records)
    GROUP BY run, p.job_id
)
SELECT
    j.run,
    j.job_id,
    j.tenant,
    j.model,
    j.mode,
    j.scale_factor,
    j.arrival_seconds,
    a.admitted_seconds,
    e.start_seconds,
    e.finish_seconds,
    e.start_seconds - j.arrival_seconds AS queueing_seconds,
    e.finish_seconds - j.arrival_seconds AS jct_seconds,
    coalesce(r.run_seconds, 0) AS run_seconds,
    coalesce(r.run_seconds, 0) * j.scale_factor AS gpu_seconds,
    j.isolated_seconds,
    round(jct_seconds / (j.isolated_seconds * greatest(1, h.jobs / h.gpus)), 5) AS ftf,
    round(jct_seconds / (j.isolated_seconds * greatest(1, a.mean_active_jobs / h.gpus)), 5) AS ftf_themis,
    ftf > 1.05 AS unfair,
    ftf_themis > 1.05 AS unfair_themis,
    coalesce(e.preemptions, 0) AS preemptions
FROM jobs AS j
JOIN runs AS h USING (run)
LEFT JOIN ends AS e USING (run, job_id)
LEFT JOIN active AS a USING (run, job_id)
LEFT JOIN ran AS r USING (run, job_id)
