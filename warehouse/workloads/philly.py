"""The compact job table made from Microsoft's Philly trace (ATC '19).

Its columns are `timestamp,duration,num_gpus,gpu_time,cluster`; `gpu_time` is not used.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from predictor.job import Mode
from tasks.sources import Workload
from warehouse.workloads.job_table import read_job_table
from warehouse.workloads.mix import MODE_WEIGHTS

COLUMNS = {"arrival": "timestamp", "duration": "duration", "gpus": "num_gpus"}
"""Column by role."""


def read_philly(
    path: Path,
    *,
    rng: np.random.Generator,
    modes: Mapping[Mode, float] = MODE_WEIGHTS,
    only: Mapping[str, str] | None = None,
    skip_unusable: bool = False,
) -> Workload:
    """Read the table, and draw what it lacks; for the arguments see `job_table.read_job_table`.

    Raises:
        InputError: The file cannot be read or a field is wrong; the error names file and line.
    """
    return read_job_table(
        path, COLUMNS, rng=rng, modes=modes, only=only, skip_unusable=skip_unusable
    )
