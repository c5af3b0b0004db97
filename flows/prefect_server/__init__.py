"""Prefect: its servers as processes, its settings, and rounds as flow runs.

Does not depend on runs, campaigns or the command line, which use it.
"""
