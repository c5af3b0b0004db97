"""`python -m trainer JOB_FOLDER`: train the job in a folder, from where it stands."""

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.errors import DONE, InvalidInput
from trainer.gang import run_guarded, supervise
from trainer.job import read_job
from trainer.place import read_place
from trainer.stop import Stop
from trainer.telemetry import read_progress

LOOPBACK = ("127.0.0.1", "localhost", "::1")


def main(arguments: Sequence[str]) -> int:
    """Train, and return the exit code."""
    stop = Stop().listen()
    return run_guarded(lambda: _run(arguments, stop))


def _run(arguments: Sequence[str], stop: Stop) -> int:
    if len(arguments) != 1:
        raise InvalidInput("arguments", f"{len(arguments)} were given", "give a job folder")
    folder = Path(arguments[0])
    job = read_job(folder)
    place = read_place(job, os.environ)
    if read_progress(folder).get("epoch") == job.epochs:
        return DONE
    _prepare(place.nodes)
    # After all that can fail without PyTorch, which takes a second to import; a fifth longer if
    # what it makes, which lives until the end, is looked through for garbage again and again.
    gc.disable()
    try:
        from trainer.collective import Collective
        from trainer.loop import train
    finally:
        gc.freeze()
        gc.enable()
    if job.scale_factor == 1:
        return train(job, folder, Collective(place, 1), stop)
    return supervise(
        place, stop, lambda own, stop: train(job, folder, Collective(own, job.scale_factor), stop)
    )


def _prepare(nodes: int) -> None:
    """Settings that PyTorch reads from the environment."""
    # Containers run as users without a home.
    os.environ.setdefault("HOME", "/tmp")
    # What CUDA needs for sums that repeat.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if nodes == 1 or os.environ["MASTER_ADDR"] in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # Files are closed and on the disk; PyTorch would take a while to clear its memory.
    os._exit(code)
