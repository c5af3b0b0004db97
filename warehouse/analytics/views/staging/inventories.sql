-- The nodes of each run's cluster.
-- grain: one row per run
-- node_of: node of each GPU. gpus_on, type_of, price_of: GPUs, GPU type and price of a GPU-hour of
-- each node. Lists are in the order of numbers, which start at 0, so the node of GPU g is node_of[g
-- + 1]. A fork has the nodes of the largest cluster that it ran on. Nodes added to a service come
-- last, and removed ones stay. changes: by how many GPUs, as of which round.
WITH added AS (
    SELECT run, list(node ORDER BY number) AS nodes
    FROM commands
    WHERE kind = 'add'
    GROUP BY run
),
begun AS (
    SELECT
        run,
        gpus,
        flatten(list_transform(pools, lambda p: list_transform(
            range(p.gpus // p.gpus_per_node),
            lambda n: {
                'gpus': p.gpus_per_node, 'gpu_type': p.gpu_type, 'price': p.price
            }
        ))) AS nodes
    FROM (
        SELECT
            run,
            list_sum(list_transform(settings.pools, lambda p: p.gpus))::BIGINT AS gpus,
            list_sort(list_transform(
                list_append(list_transform(settings.forked, lambda f: f.pools), settings.pools),
                lambda c: {'gpus': list_sum(list_transform(c, lambda p: p.gpus)), 'pools': c}
            ), 'DESC')[1].pools AS pools
        FROM headers
    )
),
whole AS (
    SELECT b.run, b.gpus, list_concat(b.nodes, list_transform(coalesce(a.nodes, []), lambda n: {
        'gpus': n.gpus, 'gpu_type': n.gpu_type, 'price': n.price
    })) AS nodes
    FROM begun AS b
    LEFT JOIN added AS a USING (run)
),
changed AS (
    SELECT g.run, list({
        'round': g.round,
        'gpus': CASE g.kind WHEN 'add' THEN g.node.gpus ELSE -w.nodes[g.target + 1].gpus END
    } ORDER BY g.number) AS changes
    FROM (
        SELECT DISTINCT ON (run, kind, CASE kind WHEN 'add' THEN number ELSE target END) *
        FROM commands
        WHERE kind IN ('add', 'remove')
        ORDER BY number
    ) AS g
    JOIN whole AS w USING (run)
    GROUP BY g.run
)
SELECT
    run,
    gpus,
    flatten(list_transform(
        range(len(nodes)), lambda i: list_transform(range(nodes[i + 1].gpus), lambda g: i)
    )) AS node_of,
    list_transform(nodes, lambda n: n.gpus) AS gpus_on,
    list_transform(nodes, lambda n: n.gpu_type) AS type_of,
    list_transform(nodes, lambda n: n.price) AS price_of,
    coalesce(changes, []) AS changes
FROM whole
LEFT JOIN changed USING (run)
