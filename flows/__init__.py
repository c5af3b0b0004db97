"""What users start: commands, deployments, campaigns, runs, and questions to recorded runs.

Each package imports only from those to its right: `cli`, `supervisor`, `web`, `deployments`, `api`,
`scheduler`, `campaigns`, `explain`, `evaluation`, `runs`, `prefect_server`.
"""
