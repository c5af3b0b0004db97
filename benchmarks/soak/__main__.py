"""A service under load: many short jobs and commands from several processes, and kills.

    python -m benchmarks.soak [--jobs 1900] [--containers 100] [--kills 20] [--speed 3600]
        [--policy shockwave] [--seed 0] [--most-grown 0.05] [--json]

Submitters, each a process, hand jobs of five tenants through the API to a service on eight GPUs
and, as the seed draws, cancel, hold, release and requeue them, change budgets, and drain and
uncordon nodes: first to one on a virtual cluster, then to one whose jobs are containers of a
Docker daemon of its own. Over the first two fifths of the entries the scheduler or, less often, the
API or a submitter is killed with -9 at random moments, and started again, and the daemon is
restarted, which ends its containers; later nobody is killed, so that the memory of one scheduler is
measured over time: `grown` is by how much more is resident in the end than when half of the entries
were taken in. Then all holds and drains end, and when the last job has ended, inbox and records are
compared with the acknowledgements of submitters: `lost`, `not_once` and `without_effect` are the
broken promises, `unclean` the findings of `audit --all`, `differs` the fields of rounds that differ
when replayed, and `twice` GPUs or jobs that two containers had at once. `parts` are the files that
compaction left of the rounds. Exit code 1 if one of the six is not 0, if memory was not measured
or has grown by more than `--most-grown`.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random

from benchmarks.attacks.kills import forked
from benchmarks.soak.hands import JOBS, SUBMITTERS, declared, end, submitter
from benchmarks.soak.kept import BAD, kept
from benchmarks.soak.place import Gauge, Place, begun, scheduler, server
from benchmarks.soak.processes import children
from flows.cli.output import print_table
from flows.scheduler.options import ServiceOptions

GPUS = 8
DEADLINE_SECONDS = 3600.0
"""Timeout of a soak."""


def soak(
    place: Place, jobs: int, kills: int, disturb: Mapping[str, Callable[[], None]]
) -> dict[str, float]:
    """Run all processes and kill them at random; returns figures.

    Args:
        place: The service.
        jobs: How many jobs are handed in.
        kills: Number of kills and disturbances.
        disturb: Further disturbances, by name.
    """
    rng, each, total = Random(place.seed), math.ceil(jobs / SUBMITTERS), jobs / JOBS
    due = sorted(rng.uniform(1.0, 0.4 * total) for _ in range(kills))
    hands = [f"submitter {me}" for me in range(SUBMITTERS)]
    work: dict[str, Callable[[], None]] = {
        "scheduler": lambda: scheduler(place),
        "api": lambda: server(place),
    }
    for me, name in enumerate(hands):
        work[name] = lambda me=me: submitter(place, me, each)  # type: ignore[misc]
    work["end"] = lambda: end(place)
    half, peak, done = 0, 0, Counter[str]()
    limit = time.monotonic() + DEADLINE_SECONDS
    with children(work) as all_of_them:
        all_of_them.start("scheduler")
        while not forked(lambda: begun(place)):
            time.sleep(0.1)
        for name in ("api", *hands):
            all_of_them.start(name)
        while "end" not in all_of_them.done:
            assert time.monotonic() < limit, "the soak does not come to its end"
            time.sleep(rng.uniform(0.0, 0.1))
            if due and place.gauge.taken >= due[0]:
                due.pop(0)
                victims = ["scheduler", "api", rng.choice(hands), *disturb]
                (victim,) = rng.choices(victims, [3, 1, 1, *[3 for _ in disturb]])
                if victim in disturb:
                    disturb[victim]()
                else:
                    all_of_them.kill(victim)
                done[victim] += 1
            if place.gauge.taken > total / 2 and not due:
                half, peak = half or place.gauge.resident_kb, place.gauge.resident_kb
            all_of_them.look(hands)
    return {
        "kills": done.total(),
        **{name: done[name] for name in ("scheduler", *disturb)},
        "half_mb": half >> 10,
        "end_mb": peak >> 10,
        "grown": round(peak / half - 1.0, 3) if half else 0.0,
    }


def on_virtual_cluster(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """A soak in accelerated real time."""
    service = ServiceOptions(
        policy=options.policy, gpus=GPUS, seed=options.seed, speed=options.speed, driver="plain"
    )
    place = Place(folder / "warehouse", service, Gauge(), options.seed, "", GPUS, declared)
    return soak(place, options.jobs, options.kills, {}) | forked(lambda: kept(place))


def in_containers(folder: Path, options: argparse.Namespace) -> dict[str, float]:
    """A soak of real jobs."""
    from benchmarks.soak import containers
    from harness.dockerd import dockerd, missing

    if lacking := missing():
        print(f"skipped: {lacking}", file=sys.stderr)
        return {}
    folder.chmod(0o755)  # containers' users pass through
    with dockerd() as daemon:
        service = containers.options(daemon, folder, options.policy, options.seed)
        where = folder / "warehouse", service, Gauge(), options.seed, ""
        place = Place(*where, containers.NODES, containers.declared, containers.MOST_ACTIVE)
        with containers.watched(daemon) as watch:
            disturb = {"daemon": containers.restarting(daemon)}
            figures = soak(place, options.containers, options.kills, disturb)
        for problem in watch.broken:
            print(f"twice: {problem}", file=sys.stderr)
        assert watch.looks, "nobody looked at the containers"
        assert watch.whole, "nobody looked at them to the end"
        return figures | forked(lambda: kept(place)) | {"twice": len(watch.broken)}


def main() -> int:
    options = parse()
    parts = {"virtual": on_virtual_cluster} if options.jobs else {}
    parts |= {"containers": in_containers} if options.containers else {}
    bad = False
    for name, part in parts.items():
        started = time.perf_counter()
        with tempfile.TemporaryDirectory() as folder:
            figures = part(Path(folder), options)
        figures["seconds"] = round(time.perf_counter() - started)
        if options.json:
            print(json.dumps({"part": name} | figures), flush=True)
        else:
            print_table([name, *figures], [["", *map(str, figures.values())]])
        bad |= any(figures.get(figure) for figure in (*BAD, "twice"))
        bad |= not figures.get("half_mb") or figures["grown"] > options.most_grown
    return bad


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1900, help="on the virtual cluster; 0: none")
    parser.add_argument("--containers", type=int, default=100, help="jobs in containers; 0: none")
    parser.add_argument("--kills", type=int, default=20, help="in each part")
    parser.add_argument("--speed", type=float, default=3600.0, help="of the virtual cluster")
    parser.add_argument("--policy", default="shockwave")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--most-grown", type=float, default=0.05, help="of memory, as a share, in the second half"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object a line")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
