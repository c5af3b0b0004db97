-- Resource usage of the containers of jobs, by the round at whose start it was observed.
-- grain: one row per run, round and job; 0 where it was not measured, as on a virtual cluster
-- seconds: trained since the last observation; run_seconds: since submission; restarts excluded.
SELECT run, round, clock_seconds, p.job_id AS job_id, p.seconds AS seconds,
    p.run_seconds AS run_seconds,
    coalesce(p.cpu_seconds, 0) AS cpu_seconds,
    coalesce(p.memory_bytes, 0) AS memory_bytes,
    coalesce(p.gpu_share, 0) AS gpu_share
FROM (SELECT run, round, clock_seconds, unnest(progress) AS p FROM records)
