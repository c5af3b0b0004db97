"""Resource usage of containers: processors, memory and this machine's GPUs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from threading import Lock, Thread
from typing import Any

from containers.leasing.engine import Usage


class Meter:
    """Reads a daemon's streams of resource usage, with one message per second.

    Args:
        stream: Opens a container's stream by its id; the stream ends with the container.
    """

    def __init__(self, stream: Callable[[str], Iterator[dict[str, Any]]]) -> None:
        self._stream = stream
        self._usage: dict[str, Usage | None] = {}
        self._lock = Lock()
        self._closed = False

    def usage(self, container: str) -> Usage | None:
        """Return a container's latest usage, None at first. The first call opens its stream."""
        with self._lock:
            if container in self._usage:
                return self._usage[container]
            self._usage[container] = None
        Thread(target=self._follow, args=(container,), daemon=True).start()
        return None

    def close(self) -> None:
        """Stop reading the streams."""
        self._closed = True

    def _follow(self, container: str) -> None:
        # A stream fails when its container, its daemon or the connection ends.
        with suppress(Exception):
            for figures in self._stream(container):
                if self._closed:
                    break
                usage = _usage(figures)
                if usage:
                    with self._lock:
                        self._usage[container] = usage
        with self._lock:
            del self._usage[container]


def _usage(figures: dict[str, Any]) -> Usage | None:
    total = figures.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage")
    memory = figures.get("memory_stats", {}).get("usage")
    if not total or memory is None:
        return None
    return Usage(total / 1e9, memory)


def gpu_share(devices: Sequence[str]) -> float:
    """Return the mean utilization of this machine's GPUs, in [0, 1]; 0 without a driver.

    It covers the driver's last sample period. `devices` are the driver's ids: numbers or UUIDs.
    """
    with nvidia_driver() as driver:
        if driver is None:
            return 0.0
        try:
            busy = [driver.nvmlDeviceGetUtilizationRates(handle_of(own)).gpu for own in devices]
        except driver.NVMLError:
            return 0.0
    return float(sum(busy)) / len(busy) / 100


@contextmanager
def nvidia_driver() -> Iterator[Any]:
    """Open this machine's NVIDIA driver: gives `pynvml`, or None without a driver."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


def handle_of(device: str) -> Any:
    """Return the driver's handle of a GPU, by number or UUID."""
    import pynvml

    if device.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(device))
    return pynvml.nvmlDeviceGetHandleByUUID(device)
