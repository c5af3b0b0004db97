"""Communication of a gang's workers: sums, the checkpoint, and a barrier at the end."""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import FileStore, Store, TCPStore

from trainer.errors import GangLost, InvalidInput
from trainer.place import WorkerPlace

PATIENCE = timedelta(minutes=5)
"""Timeout for other workers to join or to answer. An engineering bound."""


class Collective:
    """A worker's communication with its gang; does nothing for a single worker.

    Attributes:
        rank: Index of this worker; worker 0 writes the files.
    """

    def __init__(self, place: WorkerPlace, size: int) -> None:
        self.size = size
        self.device = _device(place)
        self.rank = _join(place, size, self.device) if size > 1 else 0

    def sum(self, tensor: Tensor) -> None:
        """Sum a tensor over all workers, in place; all get bitwise equal results.

        Raises:
            GangLost: Another worker is gone.
        """
        if self.size > 1:
            try:
                dist.all_reduce(tensor)
            except RuntimeError as error:
                raise _lost(error) from error

    def any(self, flag: bool) -> bool:
        """Return whether the flag is set on any worker; all get the same answer."""
        votes = torch.tensor([float(flag)], device=self.device)
        self.sum(votes)
        return votes.item() > 0.0

    def share(self, payload: bytes | None) -> bytes | None:
        """Broadcast the payload of worker 0."""
        if self.size == 1:
            return payload
        # A sum broadcasts, since only worker 0 adds numbers other than zero. -1: no payload.
        count = -1 if payload is None or self.rank else len(payload)
        length = torch.tensor([count if self.rank == 0 else 0], device=self.device)
        self.sum(length)
        if length.item() < 0:
            return None
        shared = torch.zeros(int(length.item()), dtype=torch.uint8, device=self.device)
        if self.rank == 0 and payload is not None:
            shared.copy_(torch.frombuffer(bytearray(payload), dtype=torch.uint8))
        self.sum(shared)
        return shared.cpu().numpy().tobytes()


def _device(place: WorkerPlace) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    seen = torch.cuda.device_count()
    if seen < place.workers:
        problem = f"{place.workers} workers need a GPU each, but {seen} are there"
        raise InvalidInput("GPUs", problem, "give the container as many GPUs as workers")
    torch.cuda.set_device(place.local)
    return torch.device("cuda", place.local)


def _join(place: WorkerPlace, size: int, device: torch.device) -> int:
    try:
        if place.nodes == 1:
            store: Store = FileStore(place.rendezvous, size)
            rank = place.local
        else:
            store = _master(place)
            rank = first_rank(store, place, size) + place.local
        backend = "nccl" if device.type == "cuda" else "gloo"
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    except RuntimeError as error:
        raise _lost(error) from error
    return rank


def _master(place: WorkerPlace) -> Store:
    """Return the gang's key-value store, hosted by the first worker."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    keeper = place.node == 0 and place.local == 0
    return TCPStore(address, port, is_master=keeper, timeout=PATIENCE, wait_for_workers=False)


def first_rank(store: Store, place: WorkerPlace, size: int) -> int:
    """Return the rank of a node's first worker; nodes may have different numbers of workers.

    The first worker of each node publishes its node's number in the shared store.

    Raises:
        InvalidInput: The nodes' workers do not add up to `size`.
    """
    if place.local == 0:
        store.set(f"workers of {place.node}", str(place.workers))
    workers = [int(store.get(f"workers of {node}")) for node in range(place.nodes)]
    if sum(workers) != size:
        problem = f"the nodes have {' + '.join(map(str, workers))} workers, the job {size}"
        raise InvalidInput("LOCAL_WORKERS", problem, "share out all workers of the job")
    return sum(workers[: place.node])


def _lost(error: RuntimeError) -> GangLost:
    first = str(error).splitlines()[0] if str(error) else type(error).__name__
    return GangLost(f"another worker of the gang is gone or never came ({first[:120]})")
