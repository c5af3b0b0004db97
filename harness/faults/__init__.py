"""Schedulers, containers and daemons killed at random: `python -m harness.faults`."""
