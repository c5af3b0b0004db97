"""Prefect itself: its servers as processes, its settings, and rounds as its flow runs.

Knows nothing of runs, campaigns or the command line, which all use it.
"""
