"""Every case of HiveD's own tests on its design example."""

from dataclasses import replace
from pathlib import Path

import pytest

from predictor.errors import InputError
from solver.cells.cells import Cells
from solver.cells.gangs import OPPORTUNISTIC, Preempts, Slot, Waits
from solver.cells.layout import Layout, Promise, Tenant
from tests.documents import check_python
from tests.solver.cells.clusters import (
    CT1,
    P100,
    all_nodes,
    design,
    gang,
    health,
    nodes,
    promising,
    where,
)

PAGE = Path(__file__).parents[3] / "docs" / "guarantees.md"

FIVE = gang("5, 6", "VC1", 1, (16, 16), pin="YQW")
EIGHT = gang("8, 9", "VC2", 1, (7, 5), "")
SIXTEEN = gang("16, 17", "VC1", 2, (16, 16), pin="YQW")
TWENTY = gang("20, 21", "VC1", 1, (16, 16))
TWENTY_FOUR = gang(24, "VC2", 0, (2,), CT1)
THIRTY_THREE = gang(33, "VC1", 3, (16, 16), pin="YQW")


def begun() -> Cells:
    """The cluster after all requests of the table that are to succeed, in its order."""
    cells = Cells(design())
    ask = cells.ask
    assert where(ask(gang(1, "VC1", 0, (1,)))) == [("0.0.1.0", [0])]
    assert where(ask(gang(2, "VC1", 1, (1,)))) == [("0.0.1.0", [1])]  # the buddy of 1
    assert where(ask(gang(3, "VC1", 2, (8,)))) == [("0.0.1.0", [*range(8, 16)])]  # none preempted
    assert where(ask(gang(4, "VC1", -1, (1,)))) == [("0.0.5.0", [0])]  # away from guaranteed ones
    assert nodes(ask(FIVE)) == ["0.0.3.0", "0.0.3.1"]
    assert isinstance(ask(gang(7, "VC2", 1, (8, 8, 8), P100)), Waits)
    assert where(ask(EIGHT)) == [
        ("1.0.0.0", [1, 3, 4, 7, 0, 2, 6]),
        ("1.0.0.2", [0, 1, 2, 3, 4]),
    ]
    assert ask(SIXTEEN) == Preempts(("5, 6",))
    assert nodes(ask(gang("18, 19", "VC1", 1, (16, 16)))) == ["0.0.3.2", "0.0.3.3"]
    assert nodes(ask(TWENTY)) == ["0.0.4.0", "0.0.4.1"]
    assert nodes(ask(gang("22, 23", "VC1", -1, (16, 16)))) == ["0.0.4.2", "0.0.4.3"]
    assert where(ask(TWENTY_FOUR)) == [("0.0.0.1", [0, 1])]
    assert "24" in cells.priorities()
    # 24 is demoted where it is, and 25 goes elsewhere
    assert where(ask(gang(25, "VC2", 1, (2,), CT1, lazy=False))) == [("0.0.0.0", [0, 1])]
    assert cells.priorities()["24"] == OPPORTUNISTIC
    assert cells.waiting() == ("16, 17",)
    return cells


def demoted(cells: Cells) -> set[str]:
    """Guaranteed gangs that run as opportunistic ones."""
    return {
        gang.request.name
        for gang in cells.gangs()
        if gang.request.guaranteed and cells.priorities()[gang.request.name] == OPPORTUNISTIC
    }


def test_the_table_of_requests() -> None:
    cells = begun()
    for name in reversed([*cells.priorities(), *cells.waiting()]):
        cells.end(name)
    assert not cells.priorities()
    assert not cells.waiting()
    assert {cell.pin for cell in cells.promised("VC1") if cell.slots} == {"CT1", "YQW", "IB"}
    assert not any(cell.slots for cell in cells.promised("VC2"))
    # all is as at first
    assert where(cells.ask(gang(1, "VC1", 0, (1,)))) == [("0.0.1.0", [0])]
    assert nodes(cells.ask(FIVE)) == ["0.0.3.0", "0.0.3.1"]


def test_no_lazy_preemption_where_the_gang_does_not_allow_it() -> None:
    cells = begun()
    assert cells.ask(gang(26, "VC2", 2, (2,), CT1, lazy=False)) == Preempts(("25",))


@pytest.mark.parametrize(
    ("request_of", "match"),
    [
        (lambda: gang(10, "VC2", 1, (1,)), "'VC2' has no cells of 'DGX2-V100'"),
        (lambda: gang(24, "VC2", 0, (1, 1), CT1), "asked for otherwise before"),
        (lambda: gang(13, "surprise!", 1, (1,), P100), "no tenant 'surprise!'"),
        (lambda: gang(14, "VC2", 1, (1,), pin="surprise!"), "no pinned cell 'surprise!'"),
        (lambda: gang(15, "VC2", 1001, (1,), P100), "1001 is out of range"),
        (lambda: gang(15, "VC2", 1, (), P100), "a member has no GPUs"),
        (lambda: gang(15, "VC1", -1, (1,), pin="YQW"), "have no cells"),
        (lambda: gang(15, "VC1", -1, (1,), "A100"), "there are no cells of 'A100'"),
    ],
)
def test_user_errors_change_nothing(request_of, match: str) -> None:  # type: ignore[no-untyped-def]
    cells = begun()
    before = cells.gangs(), cells.waiting(), cells.priorities()
    with pytest.raises(InputError, match=match):
        cells.ask(request_of())
    assert (cells.gangs(), cells.waiting(), cells.priorities()) == before


def test_stateful_preemption() -> None:
    cells = Cells(design())

    def ask(number: int, priority: int, lazy: bool = True):  # type: ignore[no-untyped-def]
        return cells.ask(gang(number, "VC1", priority, (16,), pin="YQW", lazy=lazy))

    assert nodes(cells.ask(gang(28, "VC1", 1, (16, 16), pin="YQW", lazy=False)))[0] == "0.0.3.0"
    assert ask(29, 2) == Preempts(("28",))
    assert isinstance(ask(30, 1), Waits)
    assert ask(31, 2) == Preempts(("28",))
    assert isinstance(ask(32, 2), Waits)  # 29 and 31 have reserved both nodes
    assert cells.waiting() == ("29", "31")
    assert cells.ask(THIRTY_THREE) == Preempts(("28",))
    assert cells.waiting() == ("33",)  # it cancelled theirs
    cells.end("28")
    assert nodes(ask(34, 4, lazy=False)) == ["0.0.3.0"]
    assert cells.waiting() == ()
    assert cells.ask(gang(35, "VC1", 5, (16, 16), pin="YQW")) == Preempts(("34",))
    cells.end("35")
    assert cells.priorities() == {"34": 4}
    # its own node is 34's again, the other one is free
    assert isinstance(cells.ask(gang("a", "VC1", 4, (16, 16), pin="YQW")), Waits)
    assert nodes(cells.ask(gang("b", "VC1", 0, (16,), pin="YQW"))) == ["0.0.3.1"]


def test_a_preemption_is_over_once_its_victims_have_ended() -> None:
    cells = Cells(design())
    cells.ask(gang(28, "VC1", 1, (16, 16), pin="YQW", lazy=False))
    cells.ask(THIRTY_THREE)
    assert cells.ask(THIRTY_THREE) == Preempts(("28",))
    cells.end("28")
    assert nodes(cells.ask(THIRTY_THREE)) == ["0.0.3.0", "0.0.3.1"]
    assert cells.priorities() == {"33": 3}


def test_suggested_nodes() -> None:
    cells = Cells(design())
    assert where(cells.ask(gang(36, "VC1", -1, (1,), ""), ["0.0.1.0"])) == [("0.0.1.0", [0])]
    cells.end("36")
    first, second = (gang(number, "VC1", 1, (1,), pin="YQW") for number in (37, 38))
    assert where(cells.ask(first, ["0.0.3.0"])) == [("0.0.3.0", [0])]
    assert where(cells.ask(second, ["0.0.3.1"])) == [("0.0.3.1", [0])]
    cells.end("37")
    cells.end("38")

    every = all_nodes(design())
    without = every - {"0.0.3.1"}
    both = gang(27, "VC1", 1, (16, 16), pin="YQW", lazy=False)
    assert isinstance(cells.ask(both, without), Waits)
    assert nodes(cells.ask(both, every)) == ["0.0.3.0", "0.0.3.1"]

    assert isinstance(cells.ask(THIRTY_THREE, every, preempt=False), Waits)  # only filtering
    assert isinstance(cells.ask(THIRTY_THREE, without), Waits)
    assert cells.waiting() == ()
    assert cells.ask(THIRTY_THREE, every) == Preempts(("27",))
    assert cells.waiting() == ("33",)
    assert isinstance(cells.ask(THIRTY_THREE, without), Waits)  # it is cancelled
    assert cells.waiting() == ()
    assert cells.priorities() == {"27": 1}


def test_backtracking() -> None:
    halves = (
        Promise("racks of 3", "node", 2),
        Promise("single", "node", 2),
        Promise("racks of 4", "half", 3),
    )
    cells = Cells(promising(VC1=halves))
    suggested = ["0.0.3.2", "0.0.3.3"]
    assert nodes(cells.ask(gang(39, "VC1", 1, (16, 16)), suggested))[0] == "0.0.3.2"
    assert nodes(cells.ask(gang(40, "VC1", 1, (16,)), ["0.0.4.3"])) == ["0.0.4.3"]
    before = cells.priorities()
    assert before == {"39": 1, "40": 1}
    four = gang(41, "VC1", 2, (16,) * 4)
    assert isinstance(cells.ask(four, [*suggested, "0.0.4.3"]), Waits)
    assert cells.priorities() == before  # the demotions that it tried are undone
    assert cells.ask(four) == Preempts(("39",))  # with all nodes it goes, and 40 is demoted
    assert cells.priorities() == {"39": OPPORTUNISTIC, "40": OPPORTUNISTIC}


def test_bad_nodes() -> None:
    layout = design()
    second = replace(
        layout.tenants[1],
        cells=(*layout.tenants[1].cells[:2], Promise("racks of 3", "node")),
    )
    cells = Cells(replace(layout, tenants=(layout.tenants[0], second)))

    def healths() -> tuple[list[bool], list[bool]]:
        return health(cells, "VC1", "racks of 3"), health(cells, "VC2", "racks of 3")

    assert nodes(cells.ask(gang(42, "VC1", 0, (16,)), ["0.0.2.0"])) == ["0.0.2.0"]
    cells.report("0.0.2.1", healthy=False)
    assert healths() == ([True], [True])  # 0.0.2.2 would do for either
    assert nodes(cells.ask(gang(43, "VC2", 0, (16,)), ["0.0.2.2"])) == ["0.0.2.2"]
    assert healths() == ([False], [])
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


def test_relaxed_buddies() -> None:
    second = design().tenants[1].cells[:2]
    layout = promising(
        VC1=(Promise("racks of 4", "node", 4), Promise("racks of 3", "node", 2)),
        VC2=(*second, Promise("racks of 4", "half")),
    )
    cells = Cells(layout)
    halves = ["0.0.3.2", "0.0.3.3", "0.0.4.2", "0.0.4.3"]
    assert nodes(cells.ask(gang(44, "VC1", 0, (16,)), halves)) == ["0.0.3.2"]
    cells.report("0.0.3.3", healthy=False)
    assert nodes(cells.ask(gang(45, "VC1", 0, (16,)), halves)) == ["0.0.4.2"]  # a rack is split
    cells.report("0.0.4.3", healthy=False)
    # to split the other half would break the promise to VC2
    answer = cells.ask(gang(46, "VC1", 0, (16,)), [*halves, "0.0.4.0", "0.0.4.1"])
    assert isinstance(answer, Waits)
    assert health(cells, "VC2", "racks of 4") == [True]
    assert nodes(cells.ask(gang("x", "VC2", 0, (16, 16)))) == ["0.0.4.0", "0.0.4.1"]


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
        pools["racks of 4"],
        nodes=(*renamed, *(f"0.0.4.{100 + number}" for number in range(4))),
    )
    pools["single"] = replace(pools["single"], nodes=(*pools["single"].nodes, *racks[4:]))
    second = layout.tenants[1].cells
    tenant = Tenant("VC2", (Promise("p100", "node", 1), *second[1:]))
    return replace(layout, pools=tuple(pools.values()), tenants=(layout.tenants[0], tenant))


def test_reconfiguration() -> None:
    before = begun()
    cells = Cells(reconfigured())
    cells.restore(before.gangs())
    assert list(cells.priorities()) == list(before.priorities())  # all go on
    assert demoted(before) == {"5, 6", "24"}
    assert demoted(cells) == {"5, 6", "24"} | {"8, 9", "20, 21"}
    for running in reversed(before.gangs()):
        cells.end(running.request.name)
    assert not cells.priorities()
    assert all(cell.pin for cell in cells.promised("VC1") if cell.slots)
    assert not any(cell.slots for cell in cells.promised("VC2"))


def test_a_restart_changes_nothing_but_reservations() -> None:
    before = begun()
    cells = Cells(design())
    cells.restore(before.gangs())
    assert cells.gangs() == before.gangs()
    assert cells.priorities() == before.priorities()
    assert cells.waiting() == ()
    assert cells.ask(SIXTEEN) == Preempts(("5, 6",))
    assert cells.priorities() == before.priorities()


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


def test_the_page_shows_what_happens() -> None:
    assert check_python(PAGE) > 9


def test_promises_that_cannot_be_kept_are_refused() -> None:
    too_many = (Promise("ct1", "node", 2), Promise("ct1", "gpu", 2), *design().tenants[0].cells[2:])
    said = r"pools\.ct1 \(.*\): 3 cells 'node' are promised and 2 are"
    with pytest.raises(InputError, match=said):
        Cells(promising(VC1=too_many))
