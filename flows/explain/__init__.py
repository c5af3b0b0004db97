"""Queries on recorded runs: replay, explanations of decisions, what-if forks."""
