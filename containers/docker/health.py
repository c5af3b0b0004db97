"""Health of a node that answers: its clock, its GPUs and free space in the storage."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from containers.docker.daemon import Daemon
from containers.docker.nodes import Node, cdi_name, nvidia_id
from containers.docker.usage import handle_of, nvidia_driver
from containers.leasing.engine import NodeGone, Refused

SKEW_SECONDS = 2.0
"""Tolerated clock skew of a node, without the query's latency. An engineering bound."""


def find_problem(node: Node, daemon: Daemon) -> str:
    """Describe the problem of a node that answers; empty if it has none."""
    began = time.time()
    try:
        info = daemon.info()
    except (NodeGone, Refused):
        return ""  # listing its containers reports a node that does not answer
    skew = measure_clock_skew(info, began, time.time())
    if abs(skew) > SKEW_SECONDS:
        return f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0.0 else 'behind'}"
    ids = [found for device in node.devices if (found := nvidia_id(device))]
    lost = find_lost_here(ids) if node.endpoint.startswith("unix://") else ()
    lost = lost or find_lost_there(node.devices, info)
    return f"GPU{'s' * (len(lost) > 1)} {', '.join(lost)} fell off the bus" if lost else ""


def measure_clock_skew(info: Mapping[str, Any], began: float, ended: float) -> float:
    """Return how many seconds a daemon's clock is ahead; 0 if latency can explain it.

    The query of `info` lasted from `began` to `ended`, in Unix time.
    """
    there = parse_system_time(info["SystemTime"])
    return min(there - began, 0.0) + max(there - ended, 0.0)


def parse_system_time(text: str) -> float:
    """Return the Unix seconds of Docker's timestamp (nanoseconds, the daemon's time zone)."""
    return datetime.fromisoformat(text).timestamp()


def find_lost_here(ids: Sequence[str]) -> tuple[str, ...]:
    """Return the GPUs that this machine's NVIDIA driver does not find; none without a driver."""
    if not ids:
        return ()
    with nvidia_driver() as driver:
        return () if driver is None else tuple(own for own in ids if _is_lost(driver, own))


def _is_lost(driver: Any, own: str) -> bool:
    try:
        driver.nvmlDeviceGetMemoryInfo(handle_of(own))
    except (
        driver.NVMLError_NotFound,
        driver.NVMLError_InvalidArgument,
        driver.NVMLError_GpuIsLost,
    ):
        return True
    except driver.NVMLError:
        return False  # such as a MIG instance, whose memory cannot be read
    return False


def find_lost_there(devices: Sequence[str], info: Mapping[str, Any]) -> tuple[str, ...]:
    """Return GPUs that a daemon does not list, if it lists others of their kind (Docker 28.2)."""
    found = {str(device.get("ID", "")) for device in info.get("DiscoveredDevices") or ()}
    kinds = {name.partition("=")[0] for name in found}
    named = {device: cdi_name(device) for device in devices}
    return tuple(
        device
        for device, name in named.items()
        if name.partition("=")[0] in kinds and name not in found
    )


class Room:
    """Free space in the shared storage, with hysteresis.

    Below the threshold `least_bytes`, the storage counts as full until twice the threshold is free.
    """

    def __init__(self, storage: Path, least_bytes: int) -> None:
        self._storage, self._least = storage, least_bytes
        self._short = False

    def problem(self) -> str:
        """Describe the problem; empty if there is none."""
        try:
            found = os.statvfs(self._storage)
        except OSError as error:
            return f"the storage cannot be looked at: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        self._short = free < self._least * (2 if self._short else 1)
        return f"the storage has {free / 2**20:,.0f} MiB left" if self._short else ""
