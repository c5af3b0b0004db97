-- Resource usage of jobs' containers, by the round at whose start it was observed.
-- grain: one row per run, round and job; 0 where it was not measured, as on a virtual cluster
-- seconds: trained since the last observation. run_seconds: trained since submission. Both exclude
-- restarts.
SELECT run, round, clock_seconds, p.job_id AS job_id, p.seconds AS seconds,
    p.run_seconds AS run_seconds,
    p.cpu_seconds AS cpu_seconds,
    p.memory_bytes AS memory_bytes,
    p.gpu_share AS gpu_share
FROM (SELECT run, round, clock_seconds, unnest(progress) AS p FROM records)
