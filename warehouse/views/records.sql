-- Round records as stored, nested; while a run is being compacted a round can be in two files.
-- grain: one row per run and round
SELECT * FROM read_parquet({rounds}, hive_partitioning = false)
QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
