-- Commands that services accepted or refused.
-- grain: one row per run and command
-- number: its entry in the inbox. target: the job, or the node's index; -1 if neither.
SELECT run, round, c.number AS number, c.kind AS kind, c.target AS target, c.node AS node
FROM {commands}
