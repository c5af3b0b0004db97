-- When jobs end in the even cluster, where all jobs present train at once and share the GPUs evenly.
-- grain: one row per run, round and job whose time was found or corrected in that round; the last
-- one of a job counts
-- The time is exact once all jobs that arrived before that time have ended; until then, a forecast, if
-- the policy reads forecasts.
SELECT run, round, f.job_id AS job_id, f.at_seconds AS fair_finish_seconds
FROM (SELECT run, round, unnest(fair_finishes) AS f FROM records)
