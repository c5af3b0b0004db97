"""The five steps of a round as plain functions, and their Prefect tasks."""
