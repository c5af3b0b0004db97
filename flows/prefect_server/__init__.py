"""Prefect: its servers as processes, its settings, and rounds as flow runs.

Runs, campaigns and the command line use this package; it must not depend on them.
"""
