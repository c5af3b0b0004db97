-- Commands that services took in.
-- grain: one row per run, round and command; a round can be in two files while it is put into a larger one
SELECT run, round, unnest(commands) AS c
FROM (
    SELECT run, round, hash, commands FROM {stored} WHERE len(commands) > 0
    QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
)
