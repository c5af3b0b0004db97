"""The five steps of a round: plain functions, and beside them their Prefect tasks."""
