-- How often do jobs change their batch size, by model and mode?
-- asked by: researchers
SELECT
    model,
    mode,
    count(*) AS jobs,
    avg(changes) AS mean_changes,
    max(changes) AS most_changes,
    avg(growth) AS mean_growth
FROM adaptations
GROUP BY model, mode
ORDER BY model, mode
