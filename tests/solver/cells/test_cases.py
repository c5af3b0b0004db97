"""HiveD's own cases on its design example, without pins, priorities and suggested nodes."""

from dataclasses import replace
from pathlib import Path

import pytest

from predictor.errors import InputError
from solver.cells.cells import Cells
from solver.cells.gangs import Granted, Slot, Waits
from solver.cells.layout import Layout, Promise, Tenant
from tests.documents import check_python
from tests.solver.cells.clusters import (
    CT1,
    P100,
    design,
    gang,
    health,
    nodes,
    promised_cells,
    promising,
    run_elsewhere,
    where,
)

PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"

EIGHT = gang("8, 9", "VC2", (7, 5), "")
TWENTY = gang("20, 21", "VC1", (16, 16))


def begun() -> Cells:
    """The cluster after all requests of the table that succeed, in its order."""
    cells = Cells(design())
    ask = cells.ask
    assert where(ask(gang(1, "VC1", (1,)))) == [("0.0.1.0", [0])]
    assert where(ask(gang(2, "VC1", (1,)))) == [("0.0.1.0", [1])]  # the buddy of 1
    assert where(ask(gang(3, "VC1", (8,)))) == [("0.0.1.0", [*range(8, 16)])]
    run_elsewhere(cells, "4", [Slot("0.0.5.0", 0)])
    assert isinstance(ask(gang(7, "VC2", (8, 8, 8), P100)), Waits)
    assert where(ask(EIGHT)) == [("1.0.0.0", [*range(7)]), ("1.0.0.2", [0, 1, 2, 3, 4])]
    assert nodes(ask(TWENTY)) == ["0.0.3.0", "0.0.3.1"]
    run_elsewhere(cells, "22, 23", [Slot(f"0.0.3.{n}", gpu) for n in (2, 3) for gpu in range(16)])
    assert where(ask(gang(24, "VC2", (2,), CT1))) == [("0.0.0.1", [0, 1])]
    return cells


def names(cells: Cells) -> list[str]:
    """Names of the gangs that run."""
    return [running.request.name for running in cells.gangs()]


def test_all_is_as_at_first_once_the_gangs_of_the_table_have_ended() -> None:
    cells = begun()
    for name in reversed(names(cells)):
        cells.end(name)
    assert not cells.gangs()
    assert not any(
        cell.slots for tenant in ("VC1", "VC2") for cell in promised_cells(cells, tenant)
    )
    assert where(cells.ask(gang(1, "VC1", (1,)))) == [("0.0.1.0", [0])]


def test_guaranteed_gangs_end_the_opportunistic_ones_on_their_cells() -> None:
    cells = Cells(design())
    racks = ("0.0.3.", "0.0.4.")
    run_elsewhere(cells, "all", [s for s in cells._ground.slots if s.node.startswith(racks)])
    run_elsewhere(cells, "apart", [Slot("0.0.5.0", 0)])
    answer = cells.ask(gang(20, "VC1", (16,) * 4))
    assert isinstance(answer, Granted)
    assert answer.victims == ("all",)
    assert names(cells) == ["apart", "20"]
    assert isinstance(cells.ask(gang(21, "VC1", (16,) * 4)), Waits)  # its tenant's other cells


def test_bad_nodes() -> None:
    layout = design()
    second = replace(
        layout.tenants[1], cells=(*layout.tenants[1].cells[:2], Promise("racks of 3", "node"))
    )
    first = replace(layout.tenants[0], cells=(Promise("racks of 3", "node", 2),))
    cells = Cells(replace(layout, tenants=(first, second)))

    def healths() -> tuple[list[bool], list[bool]]:
        return health(cells, "VC1", "racks of 3"), health(cells, "VC2", "racks of 3")

    assert nodes(cells.ask(gang(42, "VC1", (16,)))) == ["0.0.2.0"]
    cells.report("0.0.2.1", healthy=False)
    assert healths() == ([True], [True])  # 0.0.2.2 would do for either
    assert nodes(cells.ask(gang(43, "VC2", (16,)))) == ["0.0.2.2"]
    assert healths() == ([False], [])
    assert isinstance(cells.ask(gang(44, "VC1", (16,))), Waits)
    cells.end("43")
    assert healths() == ([True], [True])
    cells.report("0.0.2.2", healthy=False)
    assert healths() == ([False], [False])
    cells.report("0.0.2.2", healthy=True)
    assert healths() == ([True], [True])
    cells.report("0.0.2.0", healthy=False)
    cells.report("0.0.2.2", healthy=False)
    cells.end("42")
    assert healths() == ([False, False], [False])


def test_a_larger_cell_is_split_around_bad_nodes_only_if_all_promises_can_be_kept() -> None:
    nodes_of_4, halves = Promise("racks of 4", "node", 4), Promise("racks of 4", "half", 2)
    cells = Cells(promising(VC1=(nodes_of_4,), VC2=(halves,)))
    assert nodes(cells.ask(gang("YQW", "VC2", (16, 16)))) == ["0.0.3.0", "0.0.3.1"]
    assert nodes(cells.ask(gang(44, "VC1", (16,)))) == ["0.0.3.2"]
    cells.report("0.0.3.3", healthy=False)
    assert nodes(cells.ask(gang(45, "VC1", (16,)))) == ["0.0.4.0"]  # the other rack is split
    cells.report("0.0.4.1", healthy=False)
    # To split the last half would break the promise to VC2.
    assert isinstance(cells.ask(gang(46, "VC1", (16,))), Waits)
    assert health(cells, "VC2", "racks of 4") == [True]
    assert nodes(cells.ask(gang("x", "VC2", (16, 16)))) == ["0.0.4.2", "0.0.4.3"]


def reconfigured() -> Layout:
    """The cluster with flat DGX2 nodes, a node renamed, a rack split, and fewer cells for VC2."""
    layout = design()
    pools = {pool.name: pool for pool in layout.pools}
    for name in ("single", "racks of 4", "racks of 3"):
        above = pools[name].parts[4:]
        pools[name] = replace(pools[name], parts=(("node", 16), *above))
    racks = pools["racks of 4"].nodes
    renamed = tuple("0.0.3.100" if node == "0.0.3.1" else node for node in racks[:4])
    pools["racks of 4"] = replace(
        pools["racks of 4"], nodes=(*renamed, *(f"0.0.4.{100 + number}" for number in range(4)))
    )
    pools["single"] = replace(pools["single"], nodes=(*pools["single"].nodes, *racks[4:]))
    second = layout.tenants[1].cells
    tenant = Tenant("VC2", (Promise("p100", "node", 1), *second[1:]))
    return replace(layout, pools=tuple(pools.values()), tenants=(layout.tenants[0], tenant))


def test_all_gangs_go_on_in_another_layout_and_those_that_no_longer_fit_are_demoted() -> None:
    before = begun()
    cells = Cells(reconfigured())
    cells.restore(before.gangs())
    assert names(cells) == names(before)
    assert before.demoted() == ()
    assert cells.demoted() == ("8, 9",)
    assert cells.gangs()[names(cells).index("8, 9")].levels == (("",) * 7, ("",) * 5)
    for name in reversed(names(cells)):
        cells.end(name)
    assert not any(
        cell.slots for tenant in ("VC1", "VC2") for cell in promised_cells(cells, tenant)
    )


def test_a_restart_changes_nothing() -> None:
    before = begun()
    cells = Cells(design())
    cells.restore(before.gangs())
    assert cells.gangs() == before.gangs()
    assert cells.demoted() == ()


def test_what_cannot_be_restored_is_refused() -> None:
    before = begun().gangs()
    cells = Cells(design())
    cells.restore(before)
    with pytest.raises(InputError, match="two gangs have this name"):
        cells.restore(before[:1])
    other = replace(before[0], request=replace(before[0].request, name="other"))
    with pytest.raises(InputError, match=r"GPU 0 of node 0\.0\.1\.0 is held already"):
        cells.restore([other])
    assert before[0].slots == ((Slot("0.0.1.0", 0),),)


def test_the_examples_of_the_page_give_what_it_shows() -> None:
    assert check_python(PAGE) > 8


def test_promises_that_cannot_be_kept_are_refused() -> None:
    too_many = (Promise("ct1", "node", 2), *design().tenants[0].cells)
    said = r"pools\.ct1 \(.*\): 3 cells 'node' are promised and 2 are"
    with pytest.raises(InputError, match=said):
        Cells(promising(VC1=too_many))
