-- Commands that services took in.
-- grain: one row per run, round and command; during a merge a round can be in two files
SELECT run, round, unnest(commands) AS c
FROM (
    SELECT run, round, hash, commands FROM {stored} WHERE len(commands) > 0
    QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
)
