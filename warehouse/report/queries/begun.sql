-- All runs, and whether they have a round.
SELECT run, r.run IS NOT NULL AS begun
FROM (SELECT run FROM headers) AS h LEFT JOIN (SELECT DISTINCT run FROM records) AS r USING (run)
