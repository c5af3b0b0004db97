-- Round records as stored, nested; during a merge a round can be in two files.
-- grain: one row per run and round
SELECT * FROM {rounds}
QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
