"""What containers take of their machines, as far as it can be seen from here."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock, Thread
from typing import Any


@dataclass(frozen=True, slots=True)
class Taken:
    """What a container took so far.

    Attributes:
        cpu_seconds: Processor time since it began.
        memory_bytes: Memory that it holds.
    """

    cpu_seconds: float
    memory_bytes: int


class Meter:
    """Follows the stream of figures that a daemon gives of each container, once a second.

    Args:
        stream: Opens the stream of a container, by its id; it ends with the container.
    """

    def __init__(self, stream: Callable[[str], Iterator[dict[str, Any]]]) -> None:
        self._stream = stream
        self._taken: dict[str, Taken | None] = {}
        self._lock = Lock()
        self._over = False

    def taken(self, container: str) -> Taken | None:
        """The newest figures of a container, which is followed from now on; None so far."""
        with self._lock:
            if container in self._taken:
                return self._taken[container]
            self._taken[container] = None
        Thread(target=self._follow, args=(container,), daemon=True).start()
        return None

    def close(self) -> None:
        """Follow nothing any more."""
        self._over = True

    def _follow(self, container: str) -> None:
        # A stream breaks when its container, its daemon or the connection ends: nothing is lost.
        with suppress(Exception):
            for figures in self._stream(container):
                if self._over:
                    break
                taken = _taken(figures)
                if taken:
                    with self._lock:
                        self._taken[container] = taken
        with self._lock:
            del self._taken[container]


def _taken(figures: dict[str, Any]) -> Taken | None:
    """What a message says; None for those of a container that has ended."""
    total = figures.get("cpu_stats", {}).get("cpu_usage", {}).get("total_usage")
    memory = figures.get("memory_stats", {}).get("usage")
    if not total or memory is None:
        return None
    return Taken(total / 1e9, memory)


def gpu_share(devices: Sequence[str]) -> float:
    """The share of time that GPUs of this machine were busy of late, their mean.

    Args:
        devices: Ids as the driver has them: numbers or UUIDs.

    Returns:
        The share in [0, 1]; 0 where there is no NVIDIA driver to ask.
    """
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return 0.0
    try:
        busy = [pynvml.nvmlDeviceGetUtilizationRates(_handle(device)).gpu for device in devices]
    except pynvml.NVMLError:
        return 0.0
    finally:
        pynvml.nvmlShutdown()
    return float(sum(busy)) / len(busy) / 100


def _handle(device: str) -> Any:
    import pynvml

    if device.isdecimal():
        return pynvml.nvmlDeviceGetHandleByIndex(int(device))
    return pynvml.nvmlDeviceGetHandleByUUID(device)
