"""Allocation of GPUs to jobs: the market, its back ends, the timetable and the policies.

Pure functions of frozen dataclasses and arrays. Imports nothing of containers, storage or
the round.
"""
