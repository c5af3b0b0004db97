"""Prefect's server, and what can be started from its UI."""
