-- Does each tenant get the share of the GPU time that its budget stands for?
-- asked by: tenants
SELECT
    r.policy,
    t.tenant,
    count(*) AS runs,
    avg(t.budget_share) AS budget_share,
    avg(t.gpu_share) AS gpu_share,
    avg(t.mean_jct_s) AS mean_jct_s,
    max(t.worst_rho) AS worst_rho,
    sum(t.preemptions)::BIGINT AS preemptions
FROM tenant_summary AS t
JOIN runs AS r USING (run)
GROUP BY r.policy, t.tenant
ORDER BY r.policy, t.tenant
