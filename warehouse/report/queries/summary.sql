-- Headline figures of runs.
SELECT * FROM run_summary
