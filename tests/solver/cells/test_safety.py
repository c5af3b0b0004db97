"""What cells guarantee, on random trees, promises and gangs."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from solver.cells.cells import Cells
from solver.cells.gangs import CellRequest, Granted, Slot, Waits
from solver.cells.layout import NODE, CellPool, Layout, Promise, Tenant
from tests.solver.cells.clusters import promised_cells, run_elsewhere
from tests.strategies import examples

TENANTS = ("a", "b", "c")
Tree = tuple[int, list["Tree"], frozenset[Slot]]


@st.composite
def pools(draw: st.DrawFn) -> tuple[CellPool, ...]:
    """One or two pools of small trees with nodes, what they consist of, and what they are in."""
    found: list[CellPool] = []
    numbers = count()
    for name in range(draw(st.integers(1, 2))):
        below = draw(st.lists(st.integers(1, 3), max_size=2))
        above = draw(st.lists(st.integers(1, 3), max_size=2))
        parts = (
            *((f"part {level}", number) for level, number in enumerate(below)),
            (NODE, draw(st.integers(1, 2))),
            *((f"rack {level}", number) for level, number in enumerate(above)),
        )
        tree = 1
        for number in above:
            tree *= number
        nodes = tuple(f"n{next(numbers)}" for _ in range(tree * draw(st.integers(1, 3))))
        found.append(CellPool(f"p{name}", "xy"[name], parts, nodes))
    return tuple(found)


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Pools with as many of the promises drawn as can be kept."""
    found = draw(pools())
    levels = [(pool.name, level.name) for pool in found for level in pool.levels]
    layout = Layout(found, tuple(Tenant(name) for name in TENANTS))
    whose = st.lists(st.tuples(st.integers(0, 2), st.sampled_from(levels)), min_size=4, max_size=10)
    for tenant, (pool, level) in draw(whose):
        more = promising(layout, tenant, Promise(pool, level))
        if feasible(more):
            layout = more
    return layout


def promising(layout: Layout, tenant: int, promise: Promise) -> Layout:
    """A layout with one more promise."""
    tenants = list(layout.tenants)
    tenants[tenant] = replace(tenants[tenant], cells=(*tenants[tenant].cells, promise))
    return replace(layout, tenants=tuple(tenants))


def trees(pool: CellPool) -> list[Tree]:
    """A pool's cells as nested tuples of level, parts and GPUs, made another way."""
    cells: list[Tree] = [
        (0, [], frozenset({Slot(node, gpu)}))
        for node in pool.nodes
        for gpu in range(pool.levels[pool.level(NODE)].gpus)
    ]
    for level, (_, parts) in enumerate(pool.parts, start=1):
        groups = [cells[first : first + parts] for first in range(0, len(cells), parts)]
        cells = [
            (level, group, frozenset().union(*(gpus for _, _, gpus in group))) for group in groups
        ]
    return cells


def can_be_allocated(pool: CellPool, promised: Counter[int], taken: frozenset[Slot]) -> bool:
    """Whether cells of these levels fit at once beside the GPUs that are taken, largest first."""
    owed = Counter(promised)

    def fill(cells: list[Tree]) -> None:
        for level, parts, gpus in cells:
            if owed[level] and not gpus & taken:
                owed[level] -= 1
            else:
                rest.extend(parts)

    cells = trees(pool)
    while cells:
        rest: list[Tree] = []
        fill(cells)
        cells = rest
    return not any(owed.values())


def unclaimed(cells: Cells, layout: Layout, pool: CellPool) -> Counter[int]:
    """How many cells of each level of a pool are promised and not taken."""
    return Counter(
        pool.level(cell.level)
        for tenant in layout.tenants
        for cell in promised_cells(cells, tenant.name)
        if cell.pool == pool.name and not cell.slots
    )


def feasible(layout: Layout) -> bool:
    """Whether all promises can be kept at once in the empty cluster."""
    return all(
        can_be_allocated(
            pool,
            Counter(
                pool.level(promise.level)
                for tenant in layout.tenants
                for promise in tenant.cells
                for _ in range(promise.number)
                if promise.pool == pool.name
            ),
            frozenset(),
        )
        for pool in layout.pools
    )


@dataclass(frozen=True)
class Step:
    """What happens next: a gang asks, one ends, a node's health changes."""

    what: str
    number: int
    tenant: str
    guaranteed: bool
    members: tuple[int, ...]
    gpu_type: str


steps = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(("ask", "ask", "ask", "again", "end", "bad", "good")),
        number=st.integers(0, 20),
        tenant=st.sampled_from(TENANTS),
        guaranteed=st.booleans(),
        members=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
        gpu_type=st.sampled_from(("", "", "x", "y")),
    ),
    min_size=8,
    max_size=30,
)


def seen(cells: Cells) -> tuple[object, ...]:
    """All that can be seen of the cells."""
    promised = [promised_cells(cells, tenant) for tenant in TENANTS]
    return cells.gangs(), cells.demoted(), promised


def hold(cells: Cells, layout: Layout) -> None:
    """Check what holds at any time."""
    served = {
        tenant: [slot for cell in promised_cells(cells, tenant) for slot in cell.slots]
        for tenant in TENANTS
    }
    taken = frozenset(slot for slots in served.values() for slot in slots)
    assert sum(map(len, served.values())) == len(taken), "cells overlap"
    for pool in layout.pools:
        owed = unclaimed(cells, layout, pool)
        assert can_be_allocated(pool, owed, taken), "a promise cannot be kept"
    slots = [slot for gang in cells.gangs() for gpus in gang.slots for slot in gpus]
    assert len({*slots}) == len(slots), "two gangs run on a GPU"
    for gang in cells.gangs():
        request = gang.request
        assert tuple(len(gpus) for gpus in gang.slots) == request.members
        assert all(len({slot.node for slot in gpus}) == 1 for gpus in gang.slots)
        if request.guaranteed and request.name not in cells.demoted():
            own = {*served[request.tenant]}
            assert all(slot in own for gpus in gang.slots for slot in gpus), "not in its cells"


def names(cells: Cells) -> list[str]:
    """Names of the gangs that run."""
    return [gang.request.name for gang in cells.gangs()]


def idle(cells: Cells) -> list[Slot]:
    """GPUs on which no gang runs."""
    return [slot for slot, gpu in cells._ground.slots.items() if gpu.user is None]


def carry_out(cells: Cells, layout: Layout, step: Step, name: str, bad: set[str]) -> None:
    """One step; a gang that waits must have changed nothing."""
    nodes = [node for pool in layout.pools for node in pool.nodes]
    if step.what in ("bad", "good"):
        node = nodes[step.number % len(nodes)]
        cells.report(node, healthy=step.what == "good")
        (bad.discard if step.what == "good" else bad.add)(node)
    elif step.what == "end" and cells.gangs():
        cells.end(names(cells)[step.number % len(cells.gangs())])
    elif step.what == "ask" and not step.guaranteed:
        run_elsewhere(cells, name, idle(cells)[step.number :][: sum(step.members)])
    elif step.what == "ask":
        before, guaranteed = seen(cells), cells_in_use(cells)
        request = CellRequest(name, step.tenant, step.members, step.gpu_type)
        answer = cells.ask(request)
        if isinstance(answer, Waits):
            assert seen(cells) == before
        else:
            assert not {slot.node for gpus in answer.slots for slot in gpus} & bad
            assert not guaranteed & {*answer.victims}


def cells_in_use(cells: Cells) -> set[str]:
    """Names of the gangs that run in cells of their tenants."""
    running = (gang.request for gang in cells.gangs())
    return {request.name for request in running if request.guaranteed} - {*cells.demoted()}


@examples(50)
@given(layout=layouts(), tenant=st.integers(0, 2), number=st.integers(0, 50))
def test_promises_are_refused_where_they_cannot_be_kept(
    layout: Layout, tenant: int, number: int
) -> None:
    levels = [(pool.name, level.name) for pool in layout.pools for level in pool.levels]
    more = promising(layout, tenant, Promise(*levels[number % len(levels)]))
    if feasible(more):
        Cells(more)
    else:
        with pytest.raises(InputError, match="are promised"):
            Cells(more)


@examples(60)
@given(layout=layouts(), happening=steps)
def test_whatever_happens_every_promise_can_be_kept(layout: Layout, happening: list[Step]) -> None:
    cells = Cells(layout)
    bad: set[str] = set()
    for number, step in enumerate(happening):
        carry_out(cells, layout, step, f"g{number}", bad)
        hold(cells, layout)
    for node in bad:
        cells.report(node, healthy=True)
    everybody_asks_for_all(cells, layout)
    before = cells.gangs()
    again = Cells(layout)
    again.restore(before)
    hold(again, layout)
    assert again.gangs() == before
    assert again.demoted() == cells.demoted()


def everybody_asks_for_all(cells: Cells, layout: Layout) -> None:
    """Each tenant gets all its cells at once, whatever others run; no guaranteed gang ends."""
    for name in cells_in_use(cells):
        cells.end(name)
    asked = set()
    for tenant in layout.tenants:
        for pool in layout.pools:
            sizes = {level.name: level.gpus for level in pool.levels}
            members: list[int] = []
            for cell in promised_cells(cells, tenant.name):
                if cell.pool == pool.name:
                    size = min(sizes[cell.level], sizes[NODE])
                    members += [size] * (sizes[cell.level] // size)
            if members:
                name = f"all of {tenant.name} in {pool.name}"
                answer = cells.ask(CellRequest(name, tenant.name, tuple(members), pool.gpu_type))
                assert isinstance(answer, Granted), answer
                assert not asked & {*answer.victims}
                hold(cells, layout)
                asked.add(name)
    assert asked == cells_in_use(cells)
