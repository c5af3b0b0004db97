-- Jobs of services, from the rounds that took them in, with the columns of workloads.
-- grain: one row per run and job; during a merge a round can be in two files
SELECT run, unnest(arrivals) AS spec, unnest(truths) AS truth, unnest(submitters) AS submitter
FROM (
    SELECT run, arrivals, truths, submitters FROM {stored} WHERE len(arrivals) > 0
    QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
)
