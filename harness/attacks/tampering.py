"""Seeded edits of every kind of file of a warehouse; does `audit --all` find them?

    python -m harness.attacks.tampering [--edits 1000] [--seed 0] [--json]

A small warehouse (two ended runs, one under way, a service and its snapshot, a campaign, copies of
marts, a ledger) is made once. For each edit it is copied, edited and audited. Kinds of edits take
turns, and SEED draws what each changes. The table says by kind how many were found; exit code 1 if
one was missed.

`an older state` puts back the warehouse as it was before its newest run, ledger included. Only a
hash that was kept elsewhere reveals this, and forgeries of the ledger with valid hashes: these
kinds are audited with `--expect`.
"""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random
from time import perf_counter

import numpy as np

from flows.runs import snapshot
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from harness.attacks import edits
from harness.attacks.edits import BYTES, Target
from harness.attacks.stopped import make_service
from tasks.record import Settings, Start, make_pool
from warehouse.analytics.marts import materialise
from warehouse.store import warehouse_audit
from warehouse.store.campaigns import CellStore, write_cells, write_plan
from warehouse.store.files import CellRow, CellStatus
from warehouse.store.folder import SNAPSHOT, place_of
from warehouse.store.ledger import LEDGER, read_ledger
from warehouse.workloads.generator import generate_workload

Edit = Callable[[Target], object]

FILES = {
    "headers": ("records/*/run=*/header.parquet",),
    "workloads": ("records/*/run=*/workload.parquet",),
    "rounds": ("records/*/run=*/round=*.parquet",),
    "checksums": ("records/*/run=*/SHA256SUMS",),
    "campaigns": ("campaigns/*/*.json", "campaigns/*/*.toml", "campaigns/*/cells.parquet"),
    "marts": ("marts/*/*.parquet", "marts/current.json"),
    "ledger": (LEDGER,),
    "database": ("analytics.duckdb", ".views"),
    "snapshot": (SNAPSHOT.as_posix(),),
}
"""Patterns of the files of each kind."""

MAY_GO = ("marts", "database", "snapshot")
"""Kinds of files that may be removed: they are derived from the others."""

ROLLED_BACK = "an older state"
FORGED = ("chain and ledger forged", "run removed, ledger forged", "snapshot and ledger forged")


def main() -> int:
    options = parse()
    warehouse_audit.WAIT_SECONDS = 0.0  # nobody writes to the warehouse
    with tempfile.TemporaryDirectory() as folder:
        made = make(Path(folder) / "made")
        started = perf_counter()
        tried, missed = attack(made, Path(folder) / "edited", options.edits, options.seed)
    seconds = perf_counter() - started
    for kind in tried:
        row = {"kind": kind, "edits": tried[kind], "found": tried[kind] - missed[kind]}
        print(json.dumps(row) if options.json else "{kind:32} {found:4} of {edits}".format(**row))
    total = {"edits": tried.total(), "found": tried.total() - missed.total()}
    total["seconds"] = round(seconds)
    print(json.dumps(total) if options.json else " ".join(f"{k} {v}" for k, v in total.items()))
    return bool(missed)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--edits", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


def make(warehouse: Path) -> Target:
    """A warehouse to be edited."""
    warehouse.parent.mkdir(exist_ok=True)
    ended = [simulate(start(policy), warehouse) for policy in ("srtf", "shockwave")]
    store, rows = CellStore(warehouse), []
    for number, run in enumerate(ended):
        with store.alone(f"{number:064x}"):
            cell = store.finish(f"{number:064x}", run, 1.5)
        names = ("attacked", f"cell{number}", run, run.split("-")[0], "small", "8", "")
        rows.append(
            CellRow(*names, 0, CellStatus.FINISHED, cell.hash, cell.seconds, f"{number:064x}", "")
        )
    write_plan(warehouse, "attacked", "plan.json", '{"name":"attacked","seeds":[0,1]}')
    write_plan(warehouse, "attacked", "campaign.toml", 'name = "attacked"\nseeds = [0, 1]\n')
    write_cells(warehouse, "attacked", rows)
    materialise(warehouse)
    snapshot.EVERY = 2
    make_service(warehouse)
    unfinished = simulate(start("fifo"), warehouse, rounds=8)
    places = [place_of(warehouse, run) for run in (*ended, unfinished)]
    assert not warehouse_audit.audit_all(warehouse).findings
    return Target(warehouse, tuple(places[:-1]), places[-1], Random(0))


def start(policy: str) -> Start:
    workload = generate_workload(3, rng=np.random.default_rng(2), mean_interarrival_seconds=90.0)
    return make_start(workload, Settings(policy, make_pool(8), round_seconds=600.0))


def kinds() -> dict[str, Edit]:
    """The edits by kind."""

    def of_bytes(edit: Callable[[Path, Random], None], patterns: tuple[str, ...]) -> Edit:
        return lambda target: edit(target.file(*patterns), target.rng)

    def value(name: str, *columns: str) -> Edit:
        return lambda target: edits.one_value(target, target.run / name, *columns)

    cells = "campaigns/attacked/cells.parquet"
    found: dict[str, Edit] = {
        f"{kind}, {edit.__name__}": of_bytes(edit, patterns)
        for kind, patterns in FILES.items()
        for edit in BYTES
        if not (edit is edits.removed and kind in MAY_GO)
    }
    found |= {
        "header, a value": value("header.parquet"),
        "header, created_at": value("header.parquet", "created_at"),
        "header, packages": value("header.parquet", "packages"),
        "workload, a value": value("workload.parquet"),
        "rounds, a value": value("round=all.parquet"),
        "rounds, a wall time": value("round=all.parquet", "timings"),
        "rounds, swapped": lambda t: edits.swapped_rows(t, t.run / "round=all.parquet"),
        "round under way, a value": lambda t: edits.one_value(
            t, t.rng.choice(sorted(t.unfinished.glob("round=*.parquet")))
        ),
        "marts, a value": edits.mart,
        "marts, current.json": lambda t: edits.json_value(t, t.folder / "marts/current.json"),
        "campaign, a cell": lambda t: edits.one_value(t, t.folder / cells),
        "campaign, a finished cell": lambda t: edits.json_value(
            t, t.file("campaigns/cells/*.json")
        ),
        "snapshot, a value": lambda t: edits.json_value(t, t.folder / SNAPSHOT),
        "chain forged": lambda t: edits.forged_chain(t, t.run),
        "chain forged, under way": lambda t: edits.forged_chain(t, t.unfinished),
        "last rounds cut off": lambda t: edits.cut_off(t, t.run),
        "last rounds cut off, under way": lambda t: edits.cut_off(t, t.unfinished),
        "run removed": lambda t: shutil.rmtree(t.rng.choice([*t.ended, t.unfinished])),
        "run planted": edits.planted,
        "ledger, lines moved": edits.moved_lines,
        ROLLED_BACK: edits.as_it_was,
    }
    forged = edits.all_forged, edits.run_gone_from_all, edits.snapshot_and_ledger
    return found | dict(zip(FORGED, forged, strict=True))


def attack(made: Target, place: Path, number: int, seed: int) -> tuple[Counter[str], Counter[str]]:
    """Edit copies of a warehouse; returns the number of edits by kind, and of those missed."""
    ways = kinds()
    tried, missed = Counter[str](), Counter[str]()
    for at in range(number):
        kind = list(ways)[at % len(ways)]
        tried[kind] += 1
        if not found(made, place, kind, ways[kind], Random(f"{seed} {at}")):
            missed[kind] += 1
            print(f"missed: edit {at}, {kind}", file=sys.stderr)
    return tried, missed


def found(made: Target, place: Path, kind: str, edit: Edit, rng: Random) -> bool:
    """Whether an audit of a copy of a warehouse finds an edit of it."""
    shutil.copytree(made.folder, place)
    edit(moved(made, place, rng))
    kept = kind in (ROLLED_BACK, *FORGED)
    expected = read_ledger(made.folder).entries[-1].hash if kept else None
    findings = warehouse_audit.audit_all(place, expected).findings
    shutil.rmtree(place)
    return bool(findings)


def moved(made: Target, place: Path, rng: Random) -> Target:
    """The same warehouse at another place."""

    def there(path: Path) -> Path:
        return place / path.relative_to(made.folder)

    return Target(place, tuple(map(there, made.ended)), there(made.unfinished), rng)


if __name__ == "__main__":
    sys.exit(main())
