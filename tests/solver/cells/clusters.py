"""HiveD's design example, and changes of it."""

import tomllib
from dataclasses import replace
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter

from solver.cells.cells import Cells
from solver.cells.gangs import Answer, CellRequest, Granted
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
    name: int | str,
    tenant: str,
    members: tuple[int, ...],
    gpu_type: str = V100,
    guaranteed: bool = True,
) -> CellRequest:
    """A request by the number that it has in HiveD's tests."""
    return CellRequest(str(name), tenant, members, gpu_type, guaranteed)


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
    of_pool = (cell for cell in cells.promised(tenant) if cell.pool == pool)
    return [cell.healthy for cell in of_pool if not cell.slots]
