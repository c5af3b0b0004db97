-- What jobs were expected to do; without a row, what was expected before still is.
-- grain: one row per run, round and job that arrived, ran in the round before, or of which more
-- was learned from a job that finished
-- progress lists the share of epochs done after 0, 1, … more rounds; regimes the epochs to come.
SELECT run, round, clock_seconds, f.*
FROM (SELECT run, round, clock_seconds, unnest(forecasts) AS f FROM records)
