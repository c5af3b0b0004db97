-- Each round's record without the rows of single jobs, which other staging views have.
-- grain: one row per run and round
-- arrivals: ids of the jobs that arrived. finished: number of jobs that ended. gpus: numbers of the
-- GPUs with a lease. shared_gpus: number of GPUs that two jobs share. preemptions, bidders: numbers
-- of jobs. asked_gpus: GPUs of all bidding jobs together.
SELECT
    run,
    round,
    clock_seconds,
    arrivals,
    len(list_filter(finished, lambda e: e.kind NOT IN ('crashed', 'stopped', 'unstarted', 'lost'))) AS finished,
    len(leases) AS running_jobs,
    list_sort(list_distinct(flatten(list_transform(leases, lambda l: l.gpus)))) AS gpus,
    len(gpus) AS busy_gpus,
    coalesce(list_sum(list_transform(leases, lambda l: len(l.gpus))), 0)::BIGINT - busy_gpus AS shared_gpus,
    len(list_filter(events, lambda e: e.kind = 'preempted')) AS preemptions,
    len(list_distinct(list_transform(bids, lambda b: b.job_id))) AS bidders,
    coalesce(list_sum(list_transform(list_distinct(list_transform(
        bids, lambda b: {'job': b.job_id, 'gpus': b.allocation.gpus}
    )), lambda g: g.gpus)), 0)::BIGINT AS asked_gpus,
    solve,
    timings,
    previous_hash,
    hash
FROM records
