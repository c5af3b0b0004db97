"""HiveD's design example, and changes of it."""

import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from solver.cells.cells import Cells
from solver.cells.gangs import Answer, CellRequest, Granted, RunningGang, Slot
from solver.cells.layout import Layout, Promise

V100, P100, CT1 = "DGX2-V100", "DGX1-P100", "CT1"


@cache
def design() -> Layout:
    """The cluster of `cluster.toml`."""
    table = tomllib.loads(Path(__file__).with_name("cluster.toml").read_text())
    return TypeAdapter(Layout).validate_python(table)


def promising(**cells: tuple[Promise, ...]) -> Layout:
    """The same cluster, with other cells for some tenants."""
    layout = design()
    tenants = (
        replace(tenant, cells=cells.get(tenant.name, tenant.cells)) for tenant in layout.tenants
    )
    return replace(layout, tenants=tuple(tenants))


def gang(
    name: int | str, tenant: str, members: tuple[int, ...], gpu_type: str = V100
) -> CellRequest:
    """A request by the number that it has in HiveD's tests."""
    return CellRequest(str(name), tenant, members, gpu_type)


def run_elsewhere(cells: Cells, name: str, slots: Iterable[Slot]) -> None:
    """Let an opportunistic gang run on these GPUs."""
    each = tuple((slot,) for slot in slots)
    if each:
        request = CellRequest(name, "", (1,) * len(each), guaranteed=False)
        cells.restore([RunningGang(request, each, (("",),) * len(each))])


@dataclass(frozen=True)
class PromisedCell:
    """A cell that is promised to a tenant.

    Attributes:
        slots: The GPUs that serve it; empty while no gang has taken it.
        healthy: Whether healthy nodes alone serve it, or can serve it.
    """

    pool: str
    level: str
    slots: frozenset[Slot]
    healthy: bool


def promised_cells(cells: Cells, tenant: str) -> list[PromisedCell]:
    """The cells of a tenant, in the order of the layout."""
    ground, found = cells._ground, list[PromisedCell]()
    for (whose, pool), promised in ground.promised.items():
        if whose == tenant:
            lost = {cell.root for cell in ground.lost(tenant, pool)}
            for cell in promised:
                gpus = cell.bound.of_level(0) if cell.bound else ()
                slots = frozenset(Slot(gpu.nodes[0], gpu.gpu) for gpu in gpus)
                healthy = not cell.bound.bad if cell.bound else cell not in lost
                level = cell.pool.levels[cell.level].name
                found.append(PromisedCell(pool, level, slots, healthy))
    return found


def where(answer: Answer) -> list[tuple[str, list[int]]]:
    """Node and GPUs of each member of a placed gang."""
    assert isinstance(answer, Granted), answer
    return [(member[0].node, [slot.gpu for slot in member]) for member in answer.slots]


def nodes(answer: Answer) -> list[str]:
    """Nodes of the members of a placed gang, each of which has all GPUs of its own."""
    assert all(gpus == list(range(16)) for _, gpus in where(answer))
    return [node for node, _ in where(answer)]


def health(cells: Cells, tenant: str, pool: str) -> list[bool]:
    """Of each unclaimed cell of a tenant in a pool, whether it can be had on healthy nodes."""
    of_pool = (cell for cell in promised_cells(cells, tenant) if cell.pool == pool)
    return [cell.healthy for cell in of_pool if not cell.slots]
