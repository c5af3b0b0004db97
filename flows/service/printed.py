"""What the containers of a job printed: kept logs of those that ended, and of those that run."""

import re
import time
from collections.abc import Callable, Iterator
from contextlib import closing

from containers.docker.fleet import Fleet
from containers.docker.logs import kept
from containers.docker.nodes import Nodes
from predictor.errors import InputError
from tasks.record import RuntimeKind
from warehouse.store.reader import Reader

LOOK_SECONDS = 1.0
"""Interval in which following looks for more. An engineering choice."""

_BEGINS = re.compile(rb"^--- (\S+)\n", re.MULTILINE)
"""The line before the log of a container."""


def check_printed(reader: Reader, run: str, job_id: int) -> None:
    """Refuse a job that has printed nothing yet.

    Raises:
        InputError: It has never had GPUs, is not in the run, or the cluster is virtual.
        WarehouseError: The records are damaged.
    """
    job, why = f"job {job_id}", f"see shockwave why {job_id} --run {run}"
    if reader.header(run).settings.runtime != RuntimeKind.DOCKER:
        raise InputError(job, "is on a virtual cluster, where jobs print nothing", why)
    records = [record for record, _ in reader.records(run)]
    if not any(lease.job_id == job_id for record in records for lease in record.leases):
        raise InputError(job, "has not started", why)


def printed(
    nodes: Nodes,
    run: str,
    job_id: int,
    *,
    follow: bool = False,
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bytes]:
    """What a job's containers printed, the oldest first, each after a line with its name.

    Args:
        nodes: The cluster.
        run: The run.
        job_id: The job.
        follow: Whether to go on with what comes, for ever.
        sleep: Waits for some seconds.
    """
    shown: dict[str, int] = {}
    latest = ""
    with closing(Fleet(nodes, run)) as fleet:
        while True:
            for name, log in _logs(fleet, nodes, run, job_id).items():
                new = log[shown.get(name, 0) :]
                if new or name not in shown:
                    yield (b"" if name == latest else f"--- {name}\n".encode()) + new
                    shown[name], latest = len(log), name
            if not follow:
                return
            sleep(LOOK_SECONDS)


def _logs(fleet: Fleet, nodes: Nodes, run: str, job_id: int) -> dict[str, bytes]:
    """Logs by container. Those that run are read first: meanwhile they may end, and be kept."""
    found = [entry for entry in fleet.look() if entry.job_id == job_id and entry.container.begun]
    running = {entry.container.name: fleet.log(entry) for entry in found}
    logs: dict[str, bytes] = {}
    for text in kept(nodes, run, job_id):
        _, *parts = _BEGINS.split(text)
        for name, log in zip(parts[::2], parts[1::2], strict=True):
            known = name.decode(errors="replace")
            logs[known] = logs.get(known, b"") + log
    return logs | {name: log for name, log in running.items() if name not in logs}
