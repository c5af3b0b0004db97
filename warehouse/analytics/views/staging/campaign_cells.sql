-- What each campaign asked for, cell by cell, and which run answers it.
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
