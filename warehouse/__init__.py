"""What was and what is to be scheduled: records, views over them, traces, workloads.

Knows nothing of Prefect.
"""

from pathlib import Path

DEFAULT_WAREHOUSE = Path("var/warehouse")
"""The folder that is read and written where none is named."""
