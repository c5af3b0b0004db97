"""Data of past and future runs: records, views over them, reports, traces and workloads.

Knows nothing of Prefect.
"""

from pathlib import Path

DEFAULT_WAREHOUSE = Path("var/warehouse")
"""Default folder of the warehouse."""
