"""A worker's place in its gang, from the environment."""

from collections.abc import Mapping
from dataclasses import dataclass

from trainer.errors import InvalidInput
from trainer.job import Job


@dataclass(frozen=True, slots=True)
class WorkerPlace:
    """A worker's place in its gang.

    Attributes:
        node: Index of its container.
        nodes: Containers of the gang.
        local: Index among the workers of its container.
        rendezvous: File that the workers share in a gang of one container, else "".
    """

    node: int = 0
    nodes: int = 1
    local: int = 0
    workers: int = 1
    rendezvous: str = ""


def read_place(job: Job, environment: Mapping[str, str]) -> WorkerPlace:
    """Return the place of this container in the gang.

    Raises:
        InvalidInput: A variable is missing or wrong.
    """
    nodes = _number(environment, "NNODES", 1, least=1)
    workers = _number(environment, "LOCAL_WORKERS", job.scale_factor, least=1)
    if nodes == 1:
        if workers != job.scale_factor:
            problem = f"{workers} workers, but the job has {job.scale_factor}"
            raise InvalidInput("LOCAL_WORKERS", problem, "leave it out in a gang of one container")
        return WorkerPlace(workers=workers)
    node = _number(environment, "NODE_RANK", None, least=0)
    if node >= nodes:
        raise InvalidInput("NODE_RANK", f"{node} of {nodes} nodes", "count nodes from 0")
    _number(environment, "MASTER_PORT", None, least=1)
    if not environment.get("MASTER_ADDR"):
        raise InvalidInput("MASTER_ADDR", "it is missing", "give the address of node 0")
    return WorkerPlace(node, nodes, 0, workers)


def _number(environment: Mapping[str, str], name: str, default: int | None, least: int) -> int:
    text = environment.get(name) or ("" if default is None else str(default))
    if not text.isdecimal() or int(text) < least:
        problem = f"it is {text!r}" if text else "it is missing"
        raise InvalidInput(name, problem, f"give a whole number from {least} on")
    return int(text)
