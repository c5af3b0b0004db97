-- What jobs were expected to do; what is expected of a job that did not run does not change.
-- grain: one row per run, round and job that arrived or ran in the round before
-- progress lists the share of epochs done after 0, 1, … more rounds; regimes the epochs to come.
SELECT run, round, clock_seconds, f.*
FROM (SELECT run, round, clock_seconds, unnest(forecasts) AS f FROM records)
