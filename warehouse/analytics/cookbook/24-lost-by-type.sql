-- What did each round of a market of GPU types lose against its bound, and on which type?
-- asked by: researchers
-- of: one run
-- At the bound's prices that is the price of idle GPUs, and what jobs miss that have another type
-- than they prefer, or none: bids less prices. Not of runs in which jobs may share GPUs, as pairs
-- bid nothing of their own.
WITH market AS (
    SELECT r.run, r.round, r.clock_seconds, r.solve.bound AS bound, unnest(r.solve.prices) AS p,
        list_transform(
            range(len(i.type_of) - len(list_filter(
                i.changes, lambda c: c.gpus > 0 AND c.round > r.round
            ))),
            lambda n: {
                'gpu_type': i.type_of[n + 1],
                'gpus': CASE WHEN list_contains(r.solve.drained, n) THEN 0 ELSE i.gpus_on[n + 1] END
            }
        ) AS nodes,
        list_transform(r.gpus, lambda g: i.type_of[i.node_of[g + 1] + 1]) AS held_types
    FROM round_facts AS r
    JOIN inventories AS i USING (run)
    JOIN headers AS h USING (run)
    WHERE r.run = getvariable('run') AND len(r.solve.prices) > 1
        AND NOT list_contains(
            list_transform(h.settings.parameters, lambda p: p.name || ' ' || (p.value > 0)),
            'packed true'
        )
),
types AS (
    SELECT run, round, clock_seconds, bound, p.gpu_type AS gpu_type, p.price AS price,
        list_sum(list_transform(
            list_filter(nodes, lambda n: n.gpu_type = p.gpu_type), lambda n: n.gpus
        ))::BIGINT - len(list_filter(held_types, lambda k: k = p.gpu_type)) AS idle_gpus
    FROM market
),
offers AS (
    SELECT b.run, b.round, b.job_id, b.gpu_type,
        b.utility - b.scale_factor * t.price AS net,
        coalesce(i.type_of[i.node_of[p.gpus[1] + 1] + 1] = b.gpu_type, false) AS has
    FROM bids AS b
    JOIN types AS t USING (run, round, gpu_type)
    JOIN inventories AS i ON i.run = b.run
    LEFT JOIN placements AS p ON p.run = b.run AND p.round = b.round AND p.job_id = b.job_id
),
likes AS (
    SELECT run, round, job_id,
        greatest(max(net), 0.0) - coalesce(max(net) FILTER (has), 0.0) AS missed,
        coalesce(arg_max(gpu_type, net) FILTER (net > 0.0), max(gpu_type) FILTER (has)) AS gpu_type
    FROM offers
    GROUP BY run, round, job_id
    HAVING missed > 0.0
),
missed AS (
    SELECT run, round, gpu_type, count(*) AS jobs, sum(missed) AS loss
    FROM likes
    GROUP BY run, round, gpu_type
)
SELECT
    round,
    t.clock_seconds,
    gpu_type,
    t.price,
    t.idle_gpus,
    t.price * t.idle_gpus AS idle_loss,
    coalesce(m.jobs, 0) AS missing_jobs,
    coalesce(m.loss, 0.0) AS missing_loss,
    (idle_loss + missing_loss) / nullif(t.bound, 0) AS share_of_bound
FROM types AS t
LEFT JOIN missed AS m USING (run, round, gpu_type)
ORDER BY round, gpu_type
