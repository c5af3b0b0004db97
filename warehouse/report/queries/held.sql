-- Boxes of the Gantt chart: merges a lease's rounds at one batch size, and neighbouring GPUs.
-- A page shows no more than 2^18 GPU-rounds of a run, those of its first GPUs.
WITH shown AS (
    SELECT run, greatest(64, 2**18 // count(*))::BIGINT AS shown FROM records GROUP BY run
),
clocks AS (
    SELECT run, round, clock_seconds,
        lead(clock_seconds) OVER (PARTITION BY run ORDER BY round) AS next_seconds
    FROM records
),
ended AS (
    SELECT run, round - 1 AS round, job_id, kind, at_seconds FROM events
    WHERE kind IN ('finished', 'preempted')
),
trained AS (
    SELECT run, round - 1 AS round, p.job_id AS job_id, p.batch_size AS batch_size
    FROM (SELECT run, round, unnest(progress) AS p FROM records)
),
completed AS (
    SELECT run, round - 1 AS round, job_id, arg_max(batch_size, epoch) AS batch_size
    FROM telemetry GROUP BY ALL
),
held AS (
    SELECT a.run, a.round, a.job_id, a.shown, j.tenant, j.model, j.scale_factor,
        list_filter(a.gpus, lambda g: g < a.shown) AS gpus, c.clock_seconds AS since,
        coalesce(e.at_seconds, c.next_seconds, c.clock_seconds) AS until, e.kind AS ended,
        coalesce(t.batch_size, d.batch_size, j.batch_size) / j.batch_size AS scale
    FROM (
        SELECT p.*, s.shown
        FROM placements AS p JOIN shown AS s USING (run)
        WHERE list_min(p.gpus) < s.shown
    ) AS a
    JOIN clocks AS c USING (run, round)
    JOIN jobs AS j USING (run, job_id)
    LEFT JOIN trained AS t USING (run, round, job_id)
    LEFT JOIN completed AS d USING (run, round, job_id)
    LEFT JOIN ended AS e USING (run, round, job_id)
),
marked AS (
    SELECT *, (
        lag(round) OVER jobs = round - 1 AND lag(gpus) OVER jobs = gpus
        AND lag(scale) OVER jobs = scale AND lag(ended) OVER jobs IS NULL
    ) IS NOT TRUE AS fresh
    FROM held WINDOW jobs AS (PARTITION BY run, job_id ORDER BY round)
),
spells AS (
    SELECT *, sum(fresh::INT) OVER (PARTITION BY run, job_id ORDER BY round) AS spell FROM marked
),
merged AS (
    SELECT run, job_id, spell, any_value(gpus) AS gpus, min(since) AS since, max(until) AS until,
        any_value(scale) AS scale, max(ended) AS ended, any_value(shown) AS shown,
        any_value(tenant) AS tenant, any_value(model) AS model,
        any_value(scale_factor) AS scale_factor
    FROM spells GROUP BY run, job_id, spell
),
apart AS (
    SELECT *, gpu - row_number() OVER (PARTITION BY run, job_id, spell, type ORDER BY gpu) AS strip
    FROM (
        SELECT m.* EXCLUDE (gpus), i.type_of[i.node_of[m.gpu + 1] + 1] AS type
        FROM (SELECT *, unnest(gpus) AS gpu FROM merged) AS m JOIN inventories AS i USING (run)
    )
)
SELECT run, job_id AS job, min(gpu) AS gpu, max(gpu) + 1 AS gpu_end,
    round(any_value(since) / 3600, 4) AS hours, round(any_value(until) / 3600, 4) AS hours_end,
    any_value(scale) AS scale, any_value(ended) AS ended, type AS pool, any_value(shown) AS shown,
    any_value(tenant) AS tenant, any_value(model) AS model, any_value(scale_factor) AS scale_factor
FROM apart GROUP BY run, job_id, spell, type, strip ORDER BY run, hours, gpu
