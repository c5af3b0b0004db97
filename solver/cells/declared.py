"""Build the layout of cells from an inventory and a run's declared promises to tenants."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby
from operator import attrgetter, mul

from predictor.errors import InputError, meant
from solver.cells.layout import NODE, CellPool, Layout, Promise, Tenant
from solver.inventory import Inventory


@dataclass(frozen=True, slots=True)
class TypeLevel:
    """A level of the cells of a GPU type, above single GPUs.

    `parts` is the number of cells of the level below. The level `node` has whole nodes; an empty
    GPU type means the only one.
    """

    gpu_type: str
    name: str
    parts: int


@dataclass(frozen=True, slots=True)
class TenantCells:
    """Cells that a tenant is promised; an empty GPU type means the only one."""

    tenant: str
    gpu_type: str
    level: str
    number: int


def layout_of(
    inventory: Inventory, levels: Sequence[TypeLevel], cells: Iterable[TenantCells]
) -> Layout:
    """Return the layout of a cluster: its pools by number, its nodes by index.

    `levels` lists the levels of each GPU type from the lowest up; without any, nodes are the only
    level.

    Raises:
        InputError: A level or a promise is unknown, or contradicts the nodes. `Cells` checks
            whether all promises fit together.
    """
    types = inventory.types
    for kind in {*(level.gpu_type for level in levels), *(promise.gpu_type for promise in cells)}:
        if kind not in types:
            raise InputError("cells", f"there are no GPUs {kind!r}", meant(kind, types))
    pools = []
    for number, pool in enumerate(inventory.pools):
        parts = [(level.name, level.parts) for level in levels if level.gpu_type == pool.gpu_type]
        parts = parts or [(NODE, pool.gpus_per_node)]
        names, counts = zip(*parts, strict=True)
        sizes = dict(zip(names, accumulate(counts, mul), strict=True))
        if sizes.get(NODE) != pool.gpus_per_node:
            raise InputError(
                "levels",
                f"a node of {pool.gpu_type} has {sizes.get(NODE, 'no')} GPUs by its levels, "
                f"and {pool.gpus_per_node} in the cluster",
                f"call a level {NODE!r}, and have it as many",
            )
        nodes = [inventory.node(gpu) for gpu in inventory.gpus_in(number)[:: pool.gpus_per_node]]
        pools.append(CellPool(str(number), pool.gpu_type, tuple(parts), tuple(map(str, nodes))))
    of_tenant = attrgetter("tenant")
    tenants = tuple(
        Tenant(
            tenant,
            tuple(
                Promise(_pool(inventory, promise), promise.level, promise.number)
                for promise in some
            ),
        )
        for tenant, some in groupby(sorted(cells, key=of_tenant), key=of_tenant)
    )
    return Layout(tuple(pools), tenants)


def _pool(inventory: Inventory, cells: TenantCells) -> str:
    """Return the pool of a promise: the only one of its type."""
    numbers = inventory.pools_of[cells.gpu_type]
    if len(numbers) > 1:
        raise InputError(
            "cells",
            f"GPUs {cells.gpu_type!r} are {len(numbers)} pools",
            "promise cells of a type whose nodes are one pool",
        )
    return str(numbers[0])
