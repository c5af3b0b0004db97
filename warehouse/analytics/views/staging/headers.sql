-- Run headers as stored.
-- grain: one row per run
-- Files of earlier versions may lack the price of a pool.
SELECT * FROM {headers}
UNION ALL BY NAME
SELECT {'pools': [{'price': 0.0::DOUBLE}]} AS settings WHERE false
