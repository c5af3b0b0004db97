"""kill -9 at every write, flush, rename and removal of files in a warehouse.

    python -m harness.attacks.kills [--every 1] [--seed 0] [--json]

A scene is a sequence of writes: a new warehouse, a run from start to end, the rest of a run, a
campaign's files, copies of marts. It is acted repeatedly, each time in a new process that kills
itself at the first, the second, … boundary (`harness.attacks.boundaries`), until it comes to its
end. Acknowledged writes must survive: `lost` counts the warehouses in which one is missing,
`noticed` those in which `audit --all` finds something until a command goes on. Then the scene is
acted to its end, every other time after a second kill at a boundary that SEED draws. `wrong` counts
warehouses in which a run's hash differs from that of an undisturbed run, `unclean` those in which
`audit --all` still finds something, and `left_over` those with other files than the undisturbed
scene leaves.

Parts are of 2, 4, 8, … rounds and those that were replaced go at once, so that a short run has all
boundaries of a long one. With `--every N`, each Nth boundary only. Exit code 1 if `lost`, `wrong`,
`unclean` or `left_over` is not 0.
"""

import argparse
import json
import mmap
import os
import re
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

import numpy as np
import scipy.special  # noqa: F401 (what a run would import, each process by itself)

from flows.runs import simulation
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from harness.attacks.boundaries import dying_at
from tasks.record import Settings, Start, make_pool
from tasks.run import Run
from warehouse.analytics.catalog import build
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.store import parts, warehouse_audit, writer
from warehouse.store.campaigns import CellStore, write_cells, write_plan
from warehouse.store.files import CellRow, CellStatus
from warehouse.store.folder import name_of, run_folders
from warehouse.store.reader import Reader
from warehouse.store.verified import VERIFIED
from warehouse.workloads.generator import generate_workload

ACKNOWLEDGED = mmap.mmap(-1, 1)
"""Number of rounds that a scene has written, shared by all processes."""

Hashes = dict[str, list[str]]
"""Hashes of the rounds of runs."""

BAD = ("lost", "wrong", "unclean", "left_over")
FIGURES = ("noticed", *BAD)


@cache
def start() -> Start:
    workload = generate_workload(2, rng=np.random.default_rng(2), mean_interarrival_seconds=90.0)
    return make_start(workload, Settings("srtf", make_pool(8), round_seconds=600.0))


def run(warehouse: Path) -> None:
    """A run, or the rest of it, to its end."""
    runs = run_folders(warehouse)
    if runs:
        resume(name_of(runs[0]), warehouse, progress=acknowledged)
    else:
        simulate(start(), warehouse, progress=acknowledged)


def acknowledged(run: Run) -> None:
    if not simulation.DELAY_SECONDS:
        ACKNOWLEDGED[0] = run.state.round


def run_written_together(warehouse: Path) -> None:
    """A run, or the rest of it, whose rounds wait for each other; none of them is acknowledged."""
    simulation.DELAY_SECONDS, writer.MOST_WAITING = 1e9, 5
    run(warehouse)


def half_a_run(warehouse: Path) -> None:
    """The first rounds of a run."""
    simulate(start(), warehouse, rounds=5)


def many_small_files(warehouse: Path) -> None:
    """Half a run as written by versions without compaction on the way."""
    fan, parts.FAN = parts.FAN, 1000
    half_a_run(warehouse)
    parts.FAN = fan


def nothing(warehouse: Path) -> None:
    pass


def campaign(warehouse: Path) -> None:
    """The files of a campaign of one cell."""
    build(warehouse)
    (ended,) = map(name_of, run_folders(warehouse))
    write_plan(warehouse, "killed", "plan.json", '{"name":"killed"}')
    store = CellStore(warehouse)
    with store.alone("0" * 64):
        cell = store.find_finished("0" * 64) or store.finish("0" * 64, ended, 1.5)
    names = ("killed", "cell", ended, "srtf", "small", "8", "")
    row = CellRow(*names, 0, CellStatus.FINISHED, cell.hash, cell.seconds, "0" * 64, "")
    write_cells(warehouse, "killed", [row])


def copies(warehouse: Path) -> None:
    """Copies of marts."""
    materialise(warehouse)


SCENES: dict[str, tuple[Callable[[Path], None], Callable[[Path], None]]] = {
    "a new warehouse": (nothing, build),
    "a run": (build, run),
    "a run written together": (build, run_written_together),
    "the rest of a run": (half_a_run, run),
    "a run of many files": (many_small_files, run),
    "a campaign": (run, campaign),
    "copies of marts": (run, copies),
}
"""By name: the preparation of each scene, and the scene."""


def main() -> int:
    simulation.DELAY_SECONDS = 0.0  # as in containers
    return walk_all(__doc__, SCENES, walk, FIGURES)


def walk_all(
    doc: str,
    scenes: Iterable[str],
    walk: Callable[[str, Path, int, Random], Counter[str]],
    figures: Sequence[str],
) -> int:
    """Walk each scene as the command line asks, and print the failures.

    Args:
        doc: Docstring of the program, for its help.
        scenes: Their names.
        walk: Takes a scene, a folder, the step in boundaries and a random generator.
        figures: Names of its counts; all but the first must be 0.

    Returns:
        Exit code: 1 if one is not 0.
    """
    options = parse(doc)
    bad, warehouse_audit.WAIT_SECONDS, writer.READ_SECONDS, parts.FAN = 0, 0.0, 0.0, 2
    with tempfile.TemporaryDirectory() as place:
        for name in scenes:
            started = perf_counter()
            counts = walk(name, Path(place) / name, options.every, Random(options.seed))
            bad += sum(counts[figure] for figure in figures[1:])
            row = {"scene": name, "kills": counts["kills"]}
            row |= {figure: counts[figure] for figure in figures}
            row["seconds"] = round(perf_counter() - started)
            text = "  ".join(f"{key} {value}" for key, value in row.items())
            print(json.dumps(row) if options.json else text, flush=True)
    return bool(bad)


def parse(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="take each Nth boundary")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


@dataclass(frozen=True)
class Undisturbed:
    """The outcome of an undisturbed scene."""

    hashes: Hashes
    files: list[str]


def walk(name: str, place: Path, every: int, rng: Random) -> Counter[str]:
    """Act a scene with a kill at each boundary; returns counts of failures."""
    before, scene = SCENES[name]
    made, killed = place / "made", place / "killed"
    made.mkdir(parents=True)
    forked(lambda: before(made))
    shutil.copytree(made, killed)
    forked(lambda: scene(killed))
    undisturbed = Undisturbed(*forked(lambda: (hashes(killed), files(killed))))
    figures = Counter[str]()
    for at in count(0, every):
        shutil.rmtree(killed)
        shutil.copytree(made, killed)
        ACKNOWLEDGED[0] = 0
        if not dies(scene, killed, at):
            return figures
        problems = forked(lambda: list(after_kill(killed, undisturbed)))
        if rng.random() < 0.5:
            dies(scene, killed, rng.randrange(80))
        forked(lambda: scene(killed))
        problems += forked(lambda: list(after_all(killed, undisturbed)))
        if {*problems} & {*BAD}:
            print(f"{name}, boundary {at}: {', '.join(problems)}", file=sys.stderr)
        figures.update(["kills", *problems])
    raise AssertionError("boundaries end")


def dies(scene: Callable[[Path], None], warehouse: Path, at: int) -> bool:
    """Act a scene in a process that is killed at a boundary; False if it has fewer boundaries."""

    def acted() -> bool:
        with dying_at(at):
            scene(warehouse)
        return True

    return forked(acted) is None


def forked(work: Callable[[], Any]) -> Any:
    """The return value of a function in a forked process; None if that was killed.

    This process itself uses neither Arrow nor DuckDB, whose threads a fork would lack.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.write(writing, json.dumps(work()).encode())
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    os.close(writing)
    with open(reading, "rb") as pipe:
        answer = pipe.read()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == -signal.SIGKILL:
        return None
    assert code == 0, "a process of the walk has failed"
    return json.loads(answer)


def hashes(warehouse: Path) -> Hashes:
    runs = map(name_of, run_folders(warehouse))
    return {run: [digest for _, digest in Reader(warehouse).records(run)] for run in runs}


def files(warehouse: Path) -> list[str]:
    """The files of a warehouse; the names of copies have times in them."""
    names = (str(path.relative_to(warehouse)) for path in warehouse.rglob("*") if path.is_file())
    return sorted(
        {re.sub(r"^marts/[0-9a-f]{12}/", "marts/…/", name) for name in names} - {VERIFIED}
    )


def after_kill(warehouse: Path, undisturbed: Undisturbed) -> Iterator[str]:
    """The problems right after a kill."""
    there = hashes(warehouse)
    rounds = [len(digests) for digests in there.values()]
    whole = all(
        digests == undisturbed.hashes[run][: len(digests)] for run, digests in there.items()
    )
    count = sum(rounds)
    if not whole or count < ACKNOWLEDGED[0] or (count and count != in_sql(warehouse)):
        yield "lost"
    if warehouse_audit.audit_all(warehouse).findings:
        yield "noticed"


def in_sql(warehouse: Path) -> int:
    """The number of rounds that a query returns."""
    ((rounds,),) = Analytics(warehouse).query("SELECT count(*) FROM rounds")[1]
    return int(rounds)


def after_all(warehouse: Path, undisturbed: Undisturbed) -> Iterator[str]:
    """The problems after the scene has come to its end."""
    if hashes(warehouse) != undisturbed.hashes:
        yield "wrong"
    if warehouse_audit.audit_all(warehouse).findings:
        yield "unclean"
    if files(warehouse) != undisturbed.files:
        yield "left_over"


if __name__ == "__main__":
    sys.exit(main())
