"""A job's folder, whose contents the job controls: its limits, and the job's description."""

import errno
import os
import re
import stat
from pathlib import Path
from typing import Any

from predictor.errors import InputError
from predictor.job import JobSpec

RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")
"""Valid run ids, which are parts of paths, and of names of containers and jobs."""
MOST_FILES = 10_000
"""Most files and folders in a job's folder; bounds the time to count them. An engineering bound."""
HIDING = (errno.EACCES, errno.ENAMETOOLONG, errno.ELOOP)
"""Errors of folders that only the job can have made unreadable."""


TRAINED = (
    *("job_id", "model", "batch_size", "max_batch_size", "mode", "epochs", "samples_per_epoch"),
    "total_steps",
)
"""Fields of an adaptive job in its `job.json`."""
TIMED = "job_id", "kind", "name", "max_seconds"
"""Fields of a timed job in its `job.json`."""


def job_folder(storage: Path, run: str, job_id: int) -> Path:
    """Return the folder of a job in a storage.

    Raises:
        InputError: The run's id is not valid.
    """
    if not RUN.fullmatch(run):
        remedy = "use letters, digits, '.', '_' and '-'"
        raise InputError(f"run {run!r}", "cannot be part of a path", remedy)
    return storage / run / f"job-{job_id}"


def describe_job(spec: JobSpec, gpus: int) -> dict[str, Any]:
    """Return the `job.json` of a job for a lease of a number of GPUs."""
    job = {key: getattr(spec, key) for key in (TIMED if spec.timed else TRAINED)}
    if spec.timed:
        return {**job, "gpus": gpus}
    return {**job, "scale_factor": gpus, "seed": spec.job_id}


def describe_excess(folder: Path, most_bytes: int) -> str:
    """Explain why a job's folder exceeds its limits; empty if it does not.

    The measure is the storage space of files, without following links. Deleted files that are still
    open are not counted; their space is freed when the container ends. The folder may be missing.
    """
    taken, files, left = 0, 0, [str(folder)]
    while left:
        try:
            with os.scandir(left.pop()) as entries:
                for entry in entries:
                    found = entry.stat(follow_symlinks=False)
                    taken, files = taken + found.st_blocks * 512, files + 1
                    if taken > most_bytes:
                        return f"its folder takes more than {most_bytes / 2**30:.3g} GiB"
                    if files > MOST_FILES:
                        return f"its folder holds more than {MOST_FILES:,} files"
                    if stat.S_ISDIR(found.st_mode):
                        left.append(entry.path)
        except OSError as error:  # usually, the job has just deleted the entry
            if error.errno in HIDING:
                return f"its folder cannot be measured: {error.strerror}"
    return ""


def make_folder(folder: Path) -> None:
    """Make a job's folder, if the storage has space left.

    Raises:
        OSError: The storage is full or not writable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    room = os.statvfs(folder)
    if room.f_blocks and not room.f_bavail:  # root may have some room left
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def replace_file(path: Path, text: str) -> None:
    """Replace a file, even if its name is a link made by a job.

    Raises:
        OSError: It cannot be written.
    """
    temporary = path.with_name(f".{path.name}.new")
    temporary.unlink(missing_ok=True)
    # "x" refuses a link that the job may have created in the meantime.
    with temporary.open("x") as file:
        os.fchmod(file.fileno(), 0o644)  # independent of the umask
        file.write(text)
    temporary.replace(path)
