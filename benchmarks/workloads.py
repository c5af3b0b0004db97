"""Workloads that benchmarks share, by name: `120 jobs` and `220 jobs`, the public traces;
`generated GPUS SEED`; `modes GPUS SEED`, the same with a third of the jobs of each mode; and
`load LOAD SEED` and `load64 LOAD SEED`, streams of 200 jobs on 16 and on 64 GPUs.
"""

import os
from pathlib import Path

import numpy as np

from flows.runs.workload_source import Source
from predictor.job import Mode
from tasks.sources import Workload
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.mix import Mix
from warehouse.workloads.trace import read_workload

TRACES = {
    "120 jobs": ("jobs120_gpus32.trace", "tacc_throughputs.json", 32),
    "220 jobs": ("jobs220_gpus64.trace", "wisr_throughputs.json", 64),
}
"""Trace, profile and GPUs."""

THIRDS = Mix(modes={Mode.STATIC: 1.0, Mode.ACCORDION: 1.0, Mode.GNS: 1.0})

STREAMS = {"load": 16, "load64": 64}
"""GPUs of streams."""

SIZES = {16: (16, 90.0), 32: (120, 45.0), 64: (240, 22.5)}
"""Number of generated jobs, and mean seconds between arrivals, by GPUs."""


def gpus_of(name: str) -> int:
    """GPUs of the cluster that a workload is run on."""
    if name in TRACES:
        return TRACES[name][2]
    kind, size, _ = name.split(" ")
    return STREAMS.get(kind) or int(size)


def trace_folder() -> Path | None:
    """The folder with the public traces, where SHOCKWAVE_DATA names the one that it is in."""
    folder = os.environ.get("SHOCKWAVE_DATA")
    return Path(folder) / "shockwave" if folder else None


def open_workload(name: str, data: Path | None = None) -> Workload:
    """A workload by its name.

    Args:
        name: The name.
        data: Folder of the public traces, by default `trace_folder`.
    """
    if name in TRACES:
        trace, profile, _ = TRACES[name]
        folder = data or trace_folder()
        assert folder, "name the folder of the public traces"
        return read_workload(folder / trace, folder / profile, folder / "gns_regimes.csv")
    kind, size, seed = name.split(" ")
    if kind in STREAMS:
        return Source(jobs=200, contention_factor=float(size), seed=int(seed)).open(gpus_of(name))
    jobs, gap = SIZES[int(size)]
    rng = np.random.default_rng(int(seed))
    mix = THIRDS if kind == "modes" else None
    return generate_workload(jobs, rng=rng, mean_interarrival_seconds=gap, mix=mix)
