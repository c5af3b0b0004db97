-- Which runs are the same, and which of the same inputs are not?
-- asked by: researchers
-- of: every run
SELECT
    first_hash,
    any_value(policy) AS policy,
    any_value(trace) AS trace,
    count(*) AS runs,
    count(DISTINCT last_hash) AS different_ends,
    list(run ORDER BY run) AS names
FROM runs
WHERE complete
GROUP BY first_hash
ORDER BY different_ends DESC, runs DESC, first_hash
LIMIT 20
