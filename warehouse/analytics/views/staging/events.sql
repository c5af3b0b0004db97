-- Events of containers: launches, preemptions, ends.
-- grain: one row per run and event
SELECT run, round, e.job_id AS job_id, e.kind AS kind, e.at_seconds AS at_seconds, e.gpus AS gpus,
    e.reason AS reason
FROM (SELECT run, round, unnest(list_concat(finished, events)) AS e FROM records)
