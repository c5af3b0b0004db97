"""Losses of undisturbed training jobs, the reference for bit-equal losses."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from containers.leasing.folder import describe_job
from containers.leasing.telemetry import LINES
from harness.dockerd import TRAINER
from predictor.job import JobSpec

TRAIN = """
import os, sys
import trainer.collective, trainer.loop  # once: PyTorch takes longer to import than a job to train
from trainer.__main__ import main
for folder in sys.argv[1:]:
    child = os.fork()
    if not child:
        os._exit(main([folder]))
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{folder} did not end well")
"""
"""Trains the jobs of some folders one after another, each in its own process."""


def train_alone(specs: Iterable[JobSpec], folder: Path) -> None:
    """Train each job once, undisturbed, outside of containers.

    Args:
        specs: The jobs.
        folder: Gets a folder for each, `job-ID`.

    Raises:
        RuntimeError: A job does not report all its epochs.
    """
    jobs = {folder / f"job-{spec.job_id}": spec for spec in specs}
    for job, spec in jobs.items():
        job.mkdir(parents=True)
        (job / "job.json").write_text(json.dumps(describe_job(spec, spec.demand.size)))
    subprocess.run(
        [sys.executable, "-c", TRAIN, *jobs],
        check=True,
        env=os.environ | {"PYTHONPATH": str(TRAINER.parent)},
        stderr=subprocess.DEVNULL,
    )
    for job, spec in jobs.items():
        if losses(job).keys() != set(range(spec.epochs)):
            raise RuntimeError(f"{job.name} does not report all its epochs even if left alone")


def losses(folder: Path) -> dict[int, set[tuple[int, float]]]:
    """Batch sizes and losses by epoch, from the readable lines; one pair each if all is well."""
    results: dict[int, set[tuple[int, float]]] = {}
    if not (folder / LINES).exists():
        return results
    for line in (folder / LINES).read_bytes().splitlines():
        with suppress(ValueError, KeyError, TypeError):
            row = json.loads(line)
            epoch, result = row["epoch"], (row["batch_size"], row["loss"])
            results.setdefault(epoch, set()).add(result)
    return results
