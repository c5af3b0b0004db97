-- The cells of each campaign, and their runs.
-- grain: one row per campaign and cell
SELECT
    campaign,
    cell,
    run,
    policy,
    workload,
    cluster,
    options,
    seed,
    status,
    hash,
    seconds,
    key,
    reason
FROM {cells}
