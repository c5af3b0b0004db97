-- What each active job was expected to do, round by round.
-- grain: one row per run, round and active job
-- progress lists the share of epochs done after 0, 1, … more rounds; regimes the epochs to come.
SELECT run, round, clock_seconds, f.*
FROM (SELECT run, round, clock_seconds, unnest(forecasts) AS f FROM records)
