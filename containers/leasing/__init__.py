"""Leases of jobs on an engine that starts, ends and watches their programs."""
