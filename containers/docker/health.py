"""What keeps a node that answers from being used: its clock, its GPUs, the room in the storage."""

import os
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from containers.docker.daemon import Daemon, NodeGone, Refused
from containers.docker.nodes import Node

SKEW_SECONDS = 2.0
"""Tolerated clock skew of a node, the latency of the query excluded. An engineering bound."""

KIND = "nvidia.com/gpu="
"""What NVIDIA's devices are called in the Container Device Interface."""


def problem_of(node: Node, daemon: Daemon) -> str:
    """What is wrong with a node that answers, in words; empty if nothing is found.

    Args:
        node: The node.
        daemon: Its daemon.
    """
    began = time.time()
    try:
        info = daemon.info()
    except (NodeGone, Refused):
        return ""  # who does not answer is found when its containers are listed
    skew = clock_skew(info, began, time.time())
    if abs(skew) > SKEW_SECONDS:
        return f"its clock is {abs(skew):.0f} s {'ahead' if skew > 0.0 else 'behind'}"
    devices = [gpu.device for gpu in node.gpus if gpu.device]
    lost = lost_here(devices) if node.endpoint.startswith("unix://") else ()
    lost = lost or lost_there(devices, info)
    return f"GPU{'s' * (len(lost) > 1)} {', '.join(lost)} fell off the bus" if lost else ""


def clock_skew(info: Mapping[str, Any], began: float, ended: float) -> float:
    """How far a daemon's clock is ahead, in seconds; 0 where that may be the query's latency.

    Args:
        info: What the daemon says of itself.
        began: When it was asked, in seconds since the epoch.
        ended: When it had answered.
    """
    there = system_seconds(info["SystemTime"])
    return min(there - began, 0.0) + max(there - ended, 0.0)


def system_seconds(text: str) -> float:
    """Unix seconds of a timestamp of Docker, in nanoseconds and the daemon's time zone."""
    return datetime.fromisoformat(text).timestamp()


def lost_here(devices: Sequence[str]) -> tuple[str, ...]:
    """The GPUs of this machine that its driver does not find; none where it has no driver."""
    if not devices:
        return ()
    import pynvml

    from containers.docker.usage import handle_of

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return ()
    lost = []
    try:
        for device in devices:
            try:
                pynvml.nvmlDeviceGetMemoryInfo(handle_of(device))
            except (
                pynvml.NVMLError_NotFound,
                pynvml.NVMLError_InvalidArgument,
                pynvml.NVMLError_GpuIsLost,
            ):
                lost.append(device)
            except pynvml.NVMLError:
                continue  # such as of a part of a GPU, of which not all is told
    finally:
        pynvml.nvmlShutdown()
    return tuple(lost)


def lost_there(devices: Sequence[str], info: Mapping[str, Any]) -> tuple[str, ...]:
    """The GPUs that a daemon does not list, of one that lists some (Docker 28.2 and later)."""
    found = [str(one.get("ID", "")) for one in info.get("DiscoveredDevices") or ()]
    listed = {name.removeprefix(KIND) for name in found if name.startswith(KIND)}
    return tuple(device for device in devices if listed and device not in listed)


class Room:
    """Whether there is room in the storage, which all nodes share.

    Once there is less than is asked for, it takes twice that to be enough.

    Args:
        storage: The folder.
        least_bytes: Free space to be there.
    """

    def __init__(self, storage: Path, least_bytes: int) -> None:
        self._storage, self._least = storage, least_bytes
        self._short = False

    def problem(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        try:
            found = os.statvfs(self._storage)
        except OSError as error:
            return f"the storage cannot be looked at: {error.strerror}"
        free = found.f_bavail * found.f_frsize
        self._short = free < self._least * (2 if self._short else 1)
        return f"the storage has {free / 2**20:,.0f} MiB left" if self._short else ""
