"""A trainer that only counts its steps, for tests of runtimes.

It reads the job, reports, and handles signals with the code of the image's trainer, but starts
without PyTorch, whose import takes each container more than a second of processor time.
"""

import json
import os
import sys
import time
from pathlib import Path

from trainer import files
from trainer.errors import DONE, PREEMPTED
from trainer.gang import Stop, run_guarded
from trainer.job import read_job
from trainer.place import read_place
from trainer.telemetry import append_epoch, write_progress

CHECKPOINT = "checkpoint.json"
STEP_SECONDS = 0.05
"""Seconds of a step, independent of the processors."""


def count(folder: Path, stop: Stop) -> int:
    """Go on from the checkpoint to a job's end, or until it is preempted.

    In a gang, whose containers count in parallel, only the first one writes.

    Returns:
        The exit code.
    """
    job = read_job(folder)
    each, size = job.steps_per_epoch(job.batch_size), job.batch_size
    checkpoint = folder / CHECKPOINT
    steps, attempt = json.loads(checkpoint.read_bytes()) if checkpoint.exists() else (0, 0)
    attempt += 1
    writes = read_place(job, os.environ).node == 0

    def report() -> None:
        if not writes:
            return
        epoch, step = divmod(steps, each)
        progress = {
            "epoch": epoch,
            "step": step,
            "steps_per_epoch": each,
            "batch_size": size,
            "run_seconds": steps * STEP_SECONDS,
            "attempt": attempt,
        }
        write_progress(folder, progress)

    print(f"counts from step {steps}", flush=True)
    report()
    while steps < job.epochs * each and not stop.requested:
        time.sleep(STEP_SECONDS)
        steps += 1
        if writes and steps % each == 0:
            epoch = {
                "epoch": steps // each - 1,
                "batch_size": size,
                "samples": each * size,
                "steps": each,
                "seconds": each * STEP_SECONDS,
                "loss": each / steps,
                "attempt": attempt,
            }
            append_epoch(folder, epoch)
            report()
    if writes:
        files.replace(checkpoint, json.dumps([steps, attempt]).encode(), durable=False)
    report()
    return DONE if steps == job.epochs * each else PREEMPTED


if __name__ == "__main__":
    stop = Stop().listen()
    sys.exit(run_guarded(lambda: count(Path(sys.argv[1]), stop)))
