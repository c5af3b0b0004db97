-- Jobs of services, which are in the rounds that took them in, as workloads have them.
-- grain: one row per run and job; a round can be in two files while it is put into a larger one
SELECT run, unnest(arrivals) AS spec, unnest(truths) AS truth
FROM (
    SELECT run, arrivals, truths FROM {stored} WHERE len(arrivals) > 0
    QUALIFY row_number() OVER (PARTITION BY run, round ORDER BY hash) = 1
)
