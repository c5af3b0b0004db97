-- Run headers as stored.
-- grain: one row per run
-- Files of earlier versions may lack the price of a pool, and restarts of the profile.
SELECT * FROM {headers}
UNION ALL BY NAME
SELECT {'pools': [{'price': 0.0::DOUBLE}]} AS settings,
    [{'restart_seconds': 0.0::DOUBLE}] AS profile
WHERE false
