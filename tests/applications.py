"""A folder of one made-up application, with round figures, and workloads of its jobs."""

from pathlib import Path

from predictor.throughput import Profile
from warehouse.workloads.applications import read_applications

PASS_SECONDS = 0.1
"""Seconds of a sample's forward and backward pass."""

SYNC_SECONDS = {"1": 0.0, "2": 0.2, "11": 0.4, "12": 0.6, "22": 0.5}
"""Seconds of synchronization by placement, on nodes of two GPUs."""

SIZES = (5, 10, 20)

RUN = {10: 100, 20: 70, 40: 40}
"""Steps of an epoch by batch size."""

FILES = {
    "applications.csv": (
        "application,init_batch_size,max_batch_size,min_local_bsz,max_local_bsz,max_epochs",
        "toy,10,40,5,20,2",
    ),
    "placements.csv": (
        "application,placement,local_bsz,step_time,sync_time",
        *(
            f"toy,{placement},{size},{PASS_SECONDS * size + sync},{sync}"
            for placement, sync in SYNC_SECONDS.items()
            for size in SIZES
        ),
    ),
    "scalability.csv": (
        "application,num_nodes,num_replicas,local_bsz,step_time,sync_time",
        *(f"toy,4,8,{size},{PASS_SECONDS * size + 0.9},0.9" for size in SIZES),
    ),
    "validation.csv": (
        "application,batch_size,epoch,progress,iteration,metric,grad_sqr,grad_var",
        *(
            f"toy,{size},{epoch},{100 * (epoch + 1)},{steps * (epoch + 1)},0.5,1,{(3, 9)[epoch]}"
            for size, steps in RUN.items()
            for epoch in (0, 1)
        ),
    ),
}
"""An epoch is 100 steps of 10 samples; its noise is 3, then 9 times the signal."""

HEADER = "name,time,application,num_replicas,batch_size"


def write_applications(folder: Path, **changed: tuple[str, ...]) -> Path:
    """Write the folder, with other lines for some files, named without `.csv`."""
    folder.mkdir(exist_ok=True)
    for name, lines in FILES.items():
        lines = changed.get(name.removesuffix(".csv"), lines)
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def toy_profile(folder: Path) -> Profile:
    """The application as a profile, on GPUs of type t4."""
    return Profile({}, applications=read_applications(write_applications(folder), ("t4",)))


def write_jobs(folder: Path, *jobs: str) -> Path:
    """Write a workload of jobs, each a line."""
    path = folder / "jobs.csv"
    path.write_text("\n".join([HEADER, *jobs]) + "\n")
    return path
