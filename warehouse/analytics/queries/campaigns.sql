-- The campaigns of a warehouse.
SELECT
    campaign,
    count(*) AS cells,
    count(*) FILTER (WHERE status = 'finished') AS finished,
    count(*) FILTER (WHERE status = 'failed') AS failed,
    string_agg(DISTINCT policy, ' ' ORDER BY policy) AS policies,
    count(DISTINCT workload) AS workloads,
    count(DISTINCT cluster) AS clusters,
    count(DISTINCT options) AS variants,
    count(DISTINCT seed) AS seeds,
    max(created_at) AS newest_run
FROM (SELECT * FROM campaign_cells) AS c
LEFT JOIN (SELECT run, created_at FROM runs) AS r USING (run)
GROUP BY campaign
ORDER BY newest_run DESC NULLS LAST, campaign
