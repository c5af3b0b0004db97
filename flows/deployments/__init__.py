"""Flows that are started from Prefect's UI."""
