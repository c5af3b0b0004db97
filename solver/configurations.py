"""Configurations: the entries of a job's menu that policies weigh (Sia, SOSP '23, section 3.3)."""

from collections.abc import Mapping, Sequence

import numpy as np

from predictor.allocation import Allocation
from predictor.application import Application
from predictor.arrays import Floats, Ints
from solver.inventory import Inventory
from solver.plan import ActiveJob


def node_sizes(inventory: Inventory) -> dict[str, int]:
    """Return the GPUs of a node, by type; the largest of several pools."""
    sizes: dict[str, int] = {}
    for pool in inventory.pools:
        sizes[pool.gpu_type] = max(sizes.get(pool.gpu_type, 0), pool.gpus_per_node)
    return sizes


def list_configurations(job: ActiveJob, sizes: Mapping[str, int]) -> list[Allocation]:
    """List the allocations of a menu with a power of two of GPUs on a node, or whole nodes.

    A gang has its own size.
    """
    least = job.menu[0].gpus
    found = []
    for there in job.menu:
        size, gpus = sizes[there.gpu_type], there.gpus
        power_of_two = gpus <= size and gpus & (gpus - 1) == 0
        if gpus == least or power_of_two or gpus % size == 0:
            found.append(there)
    return found


def describe(
    job: ActiveJob, app: Application, menu: Sequence[Allocation]
) -> tuple[Ints, Ints, Floats]:
    """Return nodes as they were measured, GPUs, and speeds over those on the measured GPU type.

    `menu` are configurations of a job of an application, at least one.
    """
    shapes = np.array([(app.count_nodes(entry), entry.gpus) for entry in menu])
    kinds = {entry.gpu_type for entry in menu}
    speeds = {kind: job.throughput.relative_speed(job.spec, kind) for kind in kinds}
    return shapes[:, 0], shapes[:, 1], np.array([speeds[entry.gpu_type] for entry in menu])


def has_sizes(job: ActiveJob) -> bool:
    """Return whether a job can run on several numbers of GPUs."""
    return job.menu[0].gpus < job.menu[-1].gpus
