"""What cells guarantee, on random trees, promises and gangs."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.errors import InputError
from solver.cells.cells import Cells
from solver.cells.gangs import HIGHEST, OPPORTUNISTIC, Placed, Request, Slot, Waits
from solver.cells.layout import NODE, CellPool, Layout, Pin, Promise, Tenant
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
    """Pools with as many of the promises drawn as can be kept; sometimes one of them is pinned."""
    found = draw(pools())
    levels = [(pool.name, level.name) for pool in found for level in pool.levels]
    pins: tuple[Pin, ...] = ()
    if draw(st.booleans()):
        pool, level = draw(st.sampled_from(levels))
        nodes = next(known.nodes for known in found if known.name == pool)
        pins = (Pin("pin", pool, level, draw(st.sampled_from(nodes))),)
    layout = Layout(found, tuple(Tenant(name) for name in TENANTS), pins)
    layout = replace(
        layout, tenants=(Tenant("a", pins=tuple(pin.name for pin in pins)), *layout.tenants[1:])
    )
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
        (0, [], frozenset({Slot(node, gpu)})) for node in pool.nodes for gpu in pool.gpus_of(node)
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
        for cell in cells.promised(tenant.name)
        if cell.pool == pool.name and not cell.slots
    )


def pinned(layout: Layout) -> frozenset[Slot]:
    """GPUs of the pinned cell, if there is one."""
    for pin in layout.pins:
        pool = layout.pool(pin.pool)
        slot = Slot(pin.node, 0)
        cells = trees(pool)
        while cells:
            (cell,) = (cell for cell in cells if slot in cell[2])
            if cell[0] == pool.level(pin.level):
                return cell[2]
            cells = cell[1]
    return frozenset()


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
            pinned(layout),
        )
        for pool in layout.pools
    )


@dataclass(frozen=True)
class Step:
    """What happens next: a gang asks, one ends, a node's health changes."""

    what: str
    number: int
    tenant: str
    priority: int
    members: tuple[int, ...]
    gpu_type: str
    lazy: bool
    pin: bool
    preempt: bool
    excluded: frozenset[int]


steps = st.lists(
    st.builds(
        Step,
        what=st.sampled_from(("ask", "ask", "ask", "again", "end", "bad", "good")),
        number=st.integers(0, 20),
        tenant=st.sampled_from(TENANTS),
        priority=st.integers(OPPORTUNISTIC, 3),
        members=st.lists(st.integers(1, 6), min_size=1, max_size=3).map(tuple),
        gpu_type=st.sampled_from(("", "", "x", "y")),
        lazy=st.booleans(),
        pin=st.sampled_from((False, False, True)),
        preempt=st.sampled_from((True, True, False)),
        excluded=st.frozensets(st.integers(0, 10), max_size=2),
    ),
    min_size=8,
    max_size=30,
)


def seen(cells: Cells) -> tuple[object, ...]:
    """All that can be seen of the cells."""
    promised = [cells.promised(tenant) for tenant in TENANTS]
    return cells.gangs(), cells.priorities(), cells.waiting(), promised


def hold(cells: Cells, layout: Layout) -> None:
    """Check what holds at any time."""
    served = {
        tenant: [slot for cell in cells.promised(tenant) for slot in cell.slots]
        for tenant in TENANTS
    }
    taken = frozenset(slot for slots in served.values() for slot in slots)
    assert sum(map(len, served.values())) == len(taken), "cells overlap"
    for pool in layout.pools:
        owed = unclaimed(cells, layout, pool)
        assert can_be_allocated(pool, owed, taken), "a promise cannot be kept"
    slots = [slot for gang in cells.gangs() for gpus in gang.slots for slot in gpus]
    assert len({*slots}) == len(slots), "two gangs run on a GPU"
    running = cells.priorities()
    for gang in cells.gangs():
        request = gang.request
        assert tuple(len(gpus) for gpus in gang.slots) == request.members
        assert all(len({slot.node for slot in gpus}) == 1 for gpus in gang.slots)
        if running[request.name] > OPPORTUNISTIC:
            own = {*served[request.tenant]}
            assert all(slot in own for gpus in gang.slots for slot in gpus), "not in its cells"


def carry_out(cells: Cells, layout: Layout, step: Step, name: str, bad: set[str]) -> None:
    """One step; what waits must have changed nothing."""
    nodes = [node for pool in layout.pools for node in pool.nodes]
    allowed = {node for place, node in enumerate(nodes) if place not in step.excluded}
    gangs = [*cells.priorities(), *cells.waiting()]
    if step.what in ("bad", "good"):
        node = nodes[step.number % len(nodes)]
        cells.report(node, healthy=step.what == "good")
        (bad.discard if step.what == "good" else bad.add)(node)
    elif step.what == "end" and gangs:
        cells.end(gangs[step.number % len(gangs)])
    elif step.what == "ask":
        pin = "pin" if step.pin and step.tenant == "a" and layout.pins else ""
        priority = max(0, step.priority) if pin else step.priority
        before = seen(cells)
        request = Request(
            name, step.tenant, priority, step.members, "" if pin else step.gpu_type, pin, step.lazy
        )
        try:
            answer = cells.ask(request, allowed, step.preempt)
        except InputError:
            answer = Waits("")
        if isinstance(answer, Waits):
            assert seen(cells) == before
        elif isinstance(answer, Placed):
            used = {slot.node for gpus in answer.slots for slot in gpus}
            assert used <= allowed - bad


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
    for name in cells.waiting():
        cells.end(name)
    everybody_asks_for_all(cells, layout)
    before = cells.gangs()
    again = Cells(layout)
    again.restore(before)
    hold(again, layout)
    assert again.gangs() == before
    assert again.priorities() == cells.priorities()


def everybody_asks_for_all(cells: Cells, layout: Layout) -> None:
    """Each tenant has all its cells at once, whatever runs; nobody else's guaranteed gang goes."""
    asked = []
    for tenant in layout.tenants:
        for pool in layout.pools:
            sizes = {level.name: level.gpus for level in pool.levels}
            members: list[int] = []
            for cell in cells.promised(tenant.name):
                if cell.pool == pool.name and not cell.pin:
                    size = min(sizes[cell.level], sizes[NODE])
                    members += [size] * (sizes[cell.level] // size)
            if members:
                name = f"all of {tenant.name} in {pool.name}"
                request = Request(name, tenant.name, HIGHEST, tuple(members), pool.gpu_type)
                others = {
                    gang.request.name
                    for gang in cells.gangs()
                    if gang.request.tenant != tenant.name
                    and cells.priorities()[gang.request.name] > OPPORTUNISTIC
                }
                answer = cells.ask(request)
                assert not isinstance(answer, Waits), answer
                if not isinstance(answer, Placed):
                    assert not others & {*answer.victims}
                    for victim in answer.victims:
                        cells.end(victim)
                    assert isinstance(cells.ask(request), Placed)
                hold(cells, layout)
                asked.append(name)
    assert {*asked} <= {*cells.priorities()}
    assert all(cells.priorities()[name] == HIGHEST for name in asked)
