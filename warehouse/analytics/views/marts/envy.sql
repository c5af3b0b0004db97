-- Which finished jobs would have done better with another job's leases.
-- grain: one row per run and finished job, in runs of up to 5,000 jobs: it compares every pair
-- A Fisher market is envy-free: with equal money, nobody prefers another's goods (Shockwave, NSDI
-- '23, section 4). Here a job's goods are its leases. Job i is offered job j's leases between i's
-- admission and i's finish, on as many of j's GPUs as i's budget buys and i can use: j's seconds ×
-- min(1, (GPUs_j × budget_i) / (GPUs_i × budget_j)). envy: the offered seconds over the seconds
-- that i held. Above 1.05, the margin of unfairness, i would have ended earlier, so it envies j.
WITH fared AS (
    SELECT o.run, job_id, scale_factor, budget, admitted_seconds, finish_seconds, held_seconds
    FROM job_outcomes AS o
    JOIN runs AS h ON h.run = o.run AND h.jobs <= 5000
),
offers AS (
    SELECT
        i.run,
        i.job_id,
        j.job_id AS other_job_id,
        i.held_seconds,
        least(1, j.scale_factor * i.budget / (i.scale_factor * j.budget)) AS part,
        least(l.end_seconds, i.finish_seconds) - greatest(l.start_seconds, i.admitted_seconds) AS seconds
    FROM fared AS i
    JOIN leases AS l
        ON l.run = i.run AND l.start_seconds < i.finish_seconds AND l.end_seconds > i.admitted_seconds
    JOIN fared AS j ON j.run = l.run AND j.job_id = l.job_id
    -- A job envies only if it waited, and only jobs that got more: this drops most pairs.
    WHERE i.finish_seconds - i.admitted_seconds > 1.05 * i.held_seconds
        AND part * j.held_seconds > 1.05 * i.held_seconds
),
envied AS (
    SELECT run, job_id, other_job_id, round(sum(part * seconds) / any_value(held_seconds), 5) AS envy
    FROM offers
    GROUP BY run, job_id, other_job_id
    HAVING envy > 1.05
),
worst AS (
    SELECT run, job_id, count(*) AS envied_jobs, max(envy) AS envy,
        min_by(other_job_id, (-envied.envy, other_job_id)) AS most_envied_job_id
    FROM envied
    GROUP BY run, job_id
)
SELECT
    run,
    job_id,
    w.job_id IS NOT NULL AS envious,
    coalesce(w.envied_jobs, 0) AS envied_jobs,
    w.most_envied_job_id,
    w.envy
FROM fared AS f
LEFT JOIN worst AS w USING (run, job_id)
WHERE f.finish_seconds IS NOT NULL
