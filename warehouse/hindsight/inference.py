"""The cluster that a log's jobs ran on, as far as the log shows it."""

import math
from collections.abc import Sequence

from solver.inventory import Pool
from warehouse.workloads.logs.log import TableJob, find_most_held


def infer_pools(jobs: Sequence[TableJob]) -> tuple[Pool, ...]:
    """Return the smallest cluster that could hold the jobs when they ran.

    There is a pool for each GPU type, or a single one if some job names no type. A pool has the
    most GPUs that its jobs held at once, rounded up to whole nodes, and nodes as large as the
    largest share of a job that a node held. Where no job says how many nodes it had, each GPU is
    a node.
    """
    by_type: dict[str, list[TableJob]] = {}
    for job in jobs:
        by_type.setdefault(job.gpu_type.casefold(), []).append(job)
    if "" in by_type:
        by_type = {"": list(jobs)}
    return tuple(_infer_pool(members) for _, members in sorted(by_type.items()))


def _infer_pool(jobs: Sequence[TableJob]) -> Pool:
    types = {job.gpu_type for job in jobs}
    most = math.ceil(round(find_most_held(jobs), 6))
    per_node = max((math.ceil(job.gpus / job.nodes) for job in jobs if job.nodes), default=1)
    nodes = math.ceil(most / per_node)
    return Pool(
        min(types) if len({kind.casefold() for kind in types}) == 1 else "",
        nodes * per_node,
        per_node,
    )
