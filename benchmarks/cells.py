"""Time of cells to place gangs on a thousand nodes.

    python -m benchmarks.cells [--nodes 1000] [--asks 6000] [--seed 0] [--json]

Racks of ten nodes with eight GPUs each; ten tenants are promised nine tenths of them as racks,
nodes and halves of nodes. Gangs of 1 to 80 GPUs ask one after another and end in any order; every
twenty asks, a node turns bad or healthy again. Times are milliseconds of processor time. What is
left at the end is restored, gang by gang.
"""

import argparse
import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import fmean
from time import process_time

from flows.cli.output import print_table
from solver.cells.cells import Cells
from solver.cells.gangs import CellRequest, Granted
from solver.cells.layout import NODE, CellPool, Layout, Promise, Tenant

TENANTS = 10
MEMBERS = ((1,), (2,), (4,), (8,), (8, 8), (8, 8, 8, 8), (8,) * 10)
"""Sizes of gangs, smaller ones more often."""


def layout_of(nodes: int) -> Layout:
    """Racks of ten nodes, nine tenths of them promised."""
    racks = nodes // 10
    pool = CellPool(
        "racks",
        "gpu",
        (("pair", 2), ("half", 2), (NODE, 2), ("rack", 10)),
        tuple(f"n{node}" for node in range(10 * racks)),
    )
    share = 9 * nodes // 10 // TENANTS
    whole = share // 20
    single = share // 3
    halves = 2 * (share - 10 * whole - single)
    cells = (
        Promise("racks", "rack", whole),
        Promise("racks", NODE, single),
        Promise("racks", "half", halves),
    )
    return Layout((pool,), tuple(Tenant(f"t{number}", cells) for number in range(TENANTS)))


class Times:
    """Milliseconds of processor time of each call, by its kind."""

    def __init__(self) -> None:
        self.by_kind: dict[str, list[float]] = defaultdict(list)

    @contextmanager
    def of(self, kind: str) -> Iterator[None]:
        """Time the code within the context."""
        began = process_time()
        yield
        self.by_kind[kind].append(1e3 * (process_time() - began))


def play(layout: Layout, asks: int, seed: int) -> tuple[Times, Counter[str]]:
    """Times of all calls, and counts of answers to gangs."""
    draw = random.Random(seed)
    times, answers = Times(), Counter[str]()
    with times.of("make"):
        cells = Cells(layout)
    ends: dict[int, list[str]] = defaultdict(list)
    bad: set[str] = set()
    weights = [1 / sum(members) for members in MEMBERS]

    def end(name: str) -> None:
        with times.of("end"):
            cells.end(name)

    for number in range(asks):
        (members,) = draw.choices(MEMBERS, weights)
        tenant = f"t{draw.randrange(TENANTS)}"
        request = CellRequest(f"g{number}", tenant, members)
        with times.of("ask"):
            answer = cells.ask(request)
        answers[type(answer).__name__] += 1
        if isinstance(answer, Granted):
            ends[number + draw.randrange(1, asks)].append(request.name)
        for name in ends.pop(number, ()):
            if name in {gang.request.name for gang in cells.gangs()}:
                end(name)
        if number % 20 == 0:
            node = draw.choice(sorted(bad) if len(bad) > 5 else layout.pools[0].nodes)
            with times.of("report"):
                cells.report(node, node in bad)
            bad ^= {node}
    again = Cells(layout)
    for gang in cells.gangs():
        with times.of("restore"):
            again.restore([gang])
    return times, answers


def main() -> None:
    """Print the times, and the counts of answers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--asks", type=int, default=6000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    times, answers = play(layout_of(args.nodes), args.asks, args.seed)
    if args.json:
        print(json.dumps({"milliseconds": times.by_kind, "answers": answers}))
        return
    rows = [
        (
            kind,
            len(took),
            f"{fmean(took):.2f}",
            f"{sorted(took)[int(0.99 * len(took))]:.2f}",
            f"{max(took):.2f}",
        )
        for kind, took in times.by_kind.items()
    ]
    print_table(("call", "calls", "mean, ms", "99 %, ms", "worst, ms"), rows)
    print(", ".join(f"{count} {answer.lower()}" for answer, count in answers.items()))


if __name__ == "__main__":
    main()
