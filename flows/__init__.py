"""What users start: commands, deployments, campaigns, runs, and questions to recorded runs.

Each folder imports from those below it only: `cli`, `service`, `campaigns`, `history`,
`judging`, `runs`, `servers`.
"""
