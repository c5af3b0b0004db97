-- Run headers as stored.
-- grain: one row per run
SELECT * FROM {headers}
