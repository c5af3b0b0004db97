"""Allocate GPUs to jobs: the market, its back ends, the timetable and the policies.

Pure functions of frozen dataclasses and arrays; imports no containers, storage or round.
"""
