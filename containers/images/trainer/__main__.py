"""`python -m trainer JOB_FOLDER`: train the job in a folder from its last checkpoint."""

import gc
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from trainer.errors import DONE, InvalidInput
from trainer.gang import Stop, run_guarded, supervise
from trainer.job import read_job
from trainer.place import read_place
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
    # Imported only after all checks, since PyTorch takes a second to import. Garbage collection
    # would add a fifth to it by scanning objects that live until the end.
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
    """Set environment variables that PyTorch reads."""
    # The user of containers has no home.
    os.environ.setdefault("HOME", "/tmp")
    # CUDA needs this for reproducible sums.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    if nodes == 1 or os.environ["MASTER_ADDR"] in LOOPBACK:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        os.environ.setdefault("NCCL_SOCKET_IFNAME", "lo")


if __name__ == "__main__":
    code = main(sys.argv[1:])
    sys.stderr.flush()
    # All files are closed and on disk; PyTorch's teardown of its memory would only take time.
    os._exit(code)
