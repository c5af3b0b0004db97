-- Commands that services took in.
-- grain: one row per run, round and command; a round can be in two files while it is put into a larger one
-- Files of earlier versions may lack the node of a command.
SELECT run, round, unnest(commands) AS c
FROM (
    SELECT run, round, hash, commands FROM {stored} WHERE len(commands) > 0
    QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
)
UNION ALL BY NAME
SELECT '' AS run, 0::BIGINT AS round, {
    'number': 0::BIGINT, 'kind': '', 'target': 0::BIGINT,
    'node': {'gpu_type': '', 'gpus': 0::BIGINT, 'price': 0.0::DOUBLE}
} AS c
WHERE false
