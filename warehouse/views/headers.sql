-- Run headers as stored.
-- grain: one row per run
SELECT * FROM read_parquet({headers}, hive_partitioning = false)
