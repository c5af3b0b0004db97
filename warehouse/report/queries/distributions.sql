-- Cumulative distributions of ρ and JCT over jobs.
SELECT run, metric, value, share FROM distributions
WHERE metric IN ('rho', 'jct_seconds') ORDER BY run, metric, share, job_id
