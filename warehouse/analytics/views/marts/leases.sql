-- Leases from launch to end: place, duration, and use of the time.
-- grain: one row per run, round and lease that began; a move to other GPUs begins a new lease
-- restart_seconds: time that a started or resumed job did not train in its first round, at most the
-- cost of a restart there. idle_seconds: other time without training, waiting for rounds to end.
-- shared_seconds: time in which another job held the same GPUs; it counts by half as GPU time.
-- cost: GPU-hours × their price, 0 without prices. market_cost: GPU-rounds × each round's market
-- price, NULL without markets. A gang is spread if it spans more nodes than it needs.
-- Lists of the cluster's nodes are read first: the window below would copy them for each event.
WITH placed AS (
    SELECT e.*,
        len(list_distinct(list_transform(e.gpus, lambda g: i.node_of[g + 1]))) AS nodes,
        i.node_of[e.gpus[1] + 1] + 1 AS node,
        i.type_of[node] AS gpu_type,
        i.gpus_on[node] AS node_gpus,
        i.price_of[node] AS price,
        coalesce(
            list_filter(
                h.profile,
                lambda p: p.gpu_type = gpu_type AND p.gpus = len(e.gpus) AND p.restart_seconds > 0
            )[1].restart_seconds,
            h.settings.restart_seconds
        ) AS charge
    FROM events AS e
    JOIN headers AS h USING (run)
    JOIN inventories AS i USING (run)
),
marks AS (
    SELECT *,
        lead(round) OVER jobs AS next_round,
        lead(at_seconds) OVER jobs AS next_seconds,
        lead(kind) OVER jobs AS next_kind
    FROM placed
    WINDOW jobs AS (PARTITION BY run, job_id ORDER BY round, kind IN ('started', 'renewed', 'resumed'), at_seconds)
),
spans AS (
    SELECT m.*,
        greatest(coalesce(m.next_seconds, l.clock_seconds), m.at_seconds) AS end_seconds,
        coalesce(m.next_round, l.round) AS end_round
    FROM marks AS m
    JOIN (
        SELECT run, max(round) AS round, max(clock_seconds) AS clock_seconds
        FROM round_facts
        GROUP BY run
    ) AS l USING (run)
    WHERE m.kind NOT IN ('preempted', 'crashed', 'stopped', 'unstarted', 'lost', 'finished', 'withdrawn', 'failed')
),
measured AS (
    SELECT s.*,
        coalesce(e.run_seconds, 0) AS trained_after,
        lag(trained_after, 1, 0) OVER (PARTITION BY s.run, s.job_id ORDER BY s.round) AS trained_before,
        least(f.clock_seconds, s.end_seconds) - s.at_seconds AS first_seconds,
        f.run_seconds - trained_before AS first_trained
    FROM spans AS s
    LEFT JOIN usage AS f ON f.run = s.run AND f.job_id = s.job_id AND f.round = s.round + 1
    LEFT JOIN usage AS e ON e.run = s.run AND e.job_id = s.job_id AND e.round = s.end_round
),
markets AS (
    SELECT r.run, r.round, r.clock_seconds, t.gpu_type,
        list_filter(r.prices, lambda p: p.gpu_type = t.gpu_type)[1].price
            / h.settings.round_seconds AS rate
    FROM (SELECT run, round, clock_seconds, solve.prices AS prices FROM round_facts) AS r
    JOIN (SELECT run, unnest(list_distinct(type_of)) AS gpu_type FROM inventories) AS t USING (run)
    JOIN headers AS h USING (run)
    WHERE run IN (SELECT run FROM round_facts WHERE len(solve.prices) > 0)
),
paid AS (
    SELECT run, round, gpu_type, clock_seconds,
        rate,
        lag(rate) OVER types AS last_rate,
        count(rate) OVER before AS markets,
        coalesce(sum(rate * seconds) OVER before, 0) AS paid
    FROM (
        SELECT *, lead(clock_seconds) OVER (PARTITION BY run, gpu_type ORDER BY round)
            - clock_seconds AS seconds
        FROM markets
    )
    WINDOW types AS (PARTITION BY run, gpu_type ORDER BY round),
        before AS (types ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
),
shared AS (
    SELECT s.run, s.job_id, s.round, sum(p.seconds ORDER BY p.round) AS both_seconds,
        sum(p.seconds * m.rate ORDER BY p.round) AS both_paid
    FROM spans AS s
    JOIN sharing AS p ON p.run = s.run AND p.job_id = s.job_id
        AND p.round >= s.round AND p.round < coalesce(s.next_round, s.end_round + 1)
    LEFT JOIN markets AS m ON m.run = s.run AND m.round = p.round AND m.gpu_type = s.gpu_type
    GROUP BY s.run, s.job_id, s.round
)
SELECT
    m.run,
    m.round,
    m.job_id,
    m.kind,
    CASE WHEN next_kind IN ('preempted', 'crashed', 'stopped', 'unstarted', 'lost', 'finished', 'withdrawn', 'failed') THEN next_kind
        WHEN next_kind IS NOT NULL THEN 'moved'
    END AS ended,
    gpus,
    len(gpus) AS scale_factor,
    at_seconds AS start_seconds,
    end_seconds,
    end_seconds - at_seconds AS seconds,
    greatest(trained_after - trained_before, 0) AS run_seconds,
    CASE WHEN kind = 'renewed' OR first_trained IS NULL THEN 0
        ELSE greatest(0, least(charge, first_seconds - first_trained))
    END AS restart_seconds,
    greatest(seconds - run_seconds - restart_seconds, 0) AS idle_seconds,
    coalesce(p.both_seconds, 0) AS shared_seconds,
    m.nodes,
    ceil(scale_factor / node_gpus)::BIGINT AS fewest_nodes,
    m.nodes > fewest_nodes AS spread,
    m.gpu_type,
    scale_factor * (seconds - shared_seconds / 2) / 3600 * price AS cost,
    CASE WHEN u.markets > f.markets THEN greatest(0, scale_factor * (
        u.paid - coalesce(u.last_rate, 0) * (u.clock_seconds - m.end_seconds)
        - f.paid - coalesce(f.rate, 0) * (m.at_seconds - f.clock_seconds) - coalesce(p.both_paid, 0) / 2
    )) END AS market_cost
FROM measured AS m
LEFT JOIN shared AS p ON p.run = m.run AND p.job_id = m.job_id AND p.round = m.round
LEFT JOIN paid AS f ON f.run = m.run AND f.round = m.round AND f.gpu_type = m.gpu_type
LEFT JOIN paid AS u ON u.run = m.run AND u.round = m.end_round AND u.gpu_type = m.gpu_type
