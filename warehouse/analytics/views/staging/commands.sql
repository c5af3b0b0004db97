-- Commands that services accepted or refused.
-- grain: one row per run and command
-- number: its entry in the inbox. target: the job, or the node's index; -1 if neither.
-- Files of earlier versions can lack a command's node.
SELECT run, round, c.number AS number, c.kind AS kind, c.target AS target, c.node AS node
FROM (
    SELECT run, round, c FROM {commands}
    UNION ALL BY NAME
    SELECT '' AS run, 0::BIGINT AS round, {
        'number': 0::BIGINT, 'kind': '', 'target': 0::BIGINT,
        'node': {'gpu_type': '', 'gpus': 0::BIGINT, 'price': 0.0::DOUBLE}
    } AS c
    WHERE false
)
