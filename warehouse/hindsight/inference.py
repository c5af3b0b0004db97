"""The cluster that a log's jobs ran on, as far as the log shows it."""

import math
from collections.abc import Sequence

from solver.inventory import Pool
from warehouse.workloads.logs.log import TableJob, find_most_held


def infer_pools(jobs: Sequence[TableJob]) -> tuple[Pool, ...]:
    """Return the smallest cluster that could hold the jobs when they ran.

    There is a pool for each GPU type. A pool has the most GPUs that its jobs held at once, rounded
    up to whole nodes, and nodes as large as the largest share of a job that a node held. Where no
    job says how many nodes it had, each GPU is a node. Jobs that name no type may have run on any:
    what they held beyond the GPUs of all pools is added to the largest. Where they held most GPUs,
    there is one pool without a type.
    """
    by_type: dict[str, list[TableJob]] = {}
    for job in jobs:
        by_type.setdefault(job.gpu_type.casefold(), []).append(job)
    untyped = by_type.pop("", [])
    whole = _find_most(jobs)
    if 2 * _find_most(untyped) > whole:
        return (_make_pool("", jobs, whole),)
    sizes = {kind: _find_most(members) for kind, members in sorted(by_type.items())}
    largest = max(sizes, key=lambda kind: sizes[kind])
    lacking = whole - sum(sizes.values())
    alone = max((math.ceil(job.gpus) for job in untyped), default=0)
    sizes[largest] = max(sizes[largest] + lacking, sizes[largest], alone)
    by_type[largest] += untyped
    return tuple(
        _make_pool(min(job.gpu_type for job in by_type[kind] if job.gpu_type), by_type[kind], gpus)
        for kind, gpus in sizes.items()
    )


def _find_most(jobs: Sequence[TableJob]) -> int:
    return math.ceil(round(find_most_held(jobs), 6))


def _make_pool(gpu_type: str, jobs: Sequence[TableJob], gpus: int) -> Pool:
    """Return a pool of at least so many GPUs, on nodes as the jobs show them."""
    per_node = max((math.ceil(job.gpus / job.nodes) for job in jobs if job.nodes), default=1)
    nodes = math.ceil(gpus / per_node)
    return Pool(gpu_type, nodes * per_node, per_node)
