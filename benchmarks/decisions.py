"""Print a hash of every decision: which job held which GPUs in which round.

    python -m benchmarks.decisions [DATA] [--only WORDS] [--workers 2] [--against FILE]

A change that should not alter who runs when prints the same lines before and after. DATA is the
folder with the public traces, by default the one that the environment variable SHOCKWAVE_DATA
names. `--against` compares with the output of an earlier run, and exits with 1 on a difference.
"""

import argparse
import hashlib
import os
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from benchmarks.workloads import TRACES, gpus_of, open_workload
from flows.prefect_server.garbage import collect_rarely
from flows.runs.simulation import prepare
from flows.runs.start import fit_to_cluster, make_start
from flows.runs.workload_source import Source
from harness.conformance_of_types import (
    GPU_TYPES,
    ROUND_SECONDS,
    THROUGHPUTS,
    read_published_runs,
)
from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.policies import POLICIES
from tasks.record import Parameter, RoundRecord, RuntimeKind, Settings, Timings, make_pool
from tasks.round import run_round
from tasks.sources import Workload

OURS = "shockwave"


@dataclass(frozen=True)
class Case:
    """A workload, a policy, and the options of the run.

    `options` are `reference` (the published simulator's rules), `faithful` (the runtime), and
    parameters of the policy as NAME=VALUE.
    """

    workload: str
    policy: str
    options: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.workload.replace(" ", "-"), self.policy, *self.options))


class LeaseHash:
    """A sink that hashes the leases of each round, and keeps nothing else."""

    def __init__(self) -> None:
        self._hash = hashlib.sha256()
        self.rounds = 0

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """See `Sink.append`."""
        held = sorted((lease.job_id, *lease.gpus) for lease in record.leases)
        self._hash.update(f"{record.round} {record.clock_seconds!r} {held}\n".encode())
        self.rounds += 1

    def hexdigest(self) -> str:
        """The hash of all rounds so far."""
        return self._hash.hexdigest()


def cases(data: Path) -> Iterator[Case]:
    """All cases: public traces, GPU types, generated workloads, streams."""
    for trace in TRACES:
        for policy in POLICIES:
            yield Case(trace, policy)
    for seed in range(20):
        yield Case(f"generated 32 {seed}", OURS)
    for seed in (10, 11):
        for load in ("0.5", "0.9", "1.1"):
            yield Case(f"load {load} {seed}", OURS)
        yield Case(f"load64 0.9 {seed}", OURS)
    for seed in (1, 2):
        for policy in POLICIES:
            yield Case(f"modes 16 {seed}", policy)
        yield Case(f"modes 16 {seed}", OURS, ("faithful",))
    for policy in ("gavel", "themis", "allox", "mst", "ossp", "gandiva-fair"):
        yield Case("120 jobs", policy, ("reference",))
    for trace in dict.fromkeys(run.trace for run in read_published_runs(data / "gavel")):
        yield Case(f"gavel {trace}", OURS)
        yield Case(f"gavel {trace}", "gavel", ("reference",))
    smallest = min(
        read_published_runs(data / "gavel"), key=lambda run: int(run.trace.rpartition("_")[2])
    )
    for policy in (OURS, "gavel", "gandiva", "slaq", "antman"):
        packed = ("packed=1",) if policy in (OURS, "gavel") else ()
        yield Case(f"gavel {smallest.trace}", policy, packed)


def prepared(case: Case, data: Path) -> tuple[Workload, Settings]:
    """The workload and the settings of a case."""
    parameters = tuple(
        Parameter(name, float(value))
        for name, _, value in (option.partition("=") for option in case.options)
        if value
    )
    fidelity = Fidelity.REFERENCE if "reference" in case.options else Fidelity.FAIR
    if case.workload.startswith("gavel "):
        trace = case.workload.removeprefix("gavel ")
        pools = next(run.pools for run in read_published_runs(data / "gavel") if run.trace == trace)
        source = Source(
            trace=data / "gavel" / f"{trace}.trace", throughputs=data / "gavel" / THROUGHPUTS
        )
        asked = Settings(case.policy, pools, round_seconds=ROUND_SECONDS, restart_seconds=20.0)
        settings, workload = fit_to_cluster(source.open(gpu_types=GPU_TYPES), asked)
    else:
        gpus = gpus_of(case.workload)
        workload = open_workload(case.workload, data / "shockwave")
        settings = Settings(case.policy, make_pool(gpus, min(gpus, 8) if gpus == 16 else 1))
    kind = RuntimeKind.FAITHFUL if "faithful" in case.options else settings.runtime
    return workload, replace(settings, parameters=parameters, fidelity=fidelity, runtime=kind)


def decisions(case: Case, data: Path) -> str:
    """A line: the case, its rounds, and the hash of its leases, or why it cannot run."""
    try:
        workload, settings = prepared(case, data)
        start = make_start(workload, settings)
    except InputError as error:  # the policy does not take these GPUs
        return f"{case}: {error}"
    sink = LeaseHash()
    with prepare(start).open_run(sink) as run, collect_rarely():
        while not run.finished:
            run_round(run)
    return f"{case}: {sink.rounds} {sink.hexdigest()[:24]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    folder = os.environ.get("SHOCKWAVE_DATA")
    default = Path(folder) if folder else None
    parser.add_argument("data", type=Path, nargs="?" if default else None, default=default)
    parser.add_argument("--only", default="", help="only cases whose line has these words")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--against", type=Path, help="compare with an earlier run's output")
    options = parser.parse_args()
    words = options.only.split()
    chosen = [case for case in cases(options.data) if all(word in str(case) for word in words)]
    known = set(options.against.read_text().splitlines()) if options.against else set()
    differs = False
    with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
        for line in pool.map(partial(decisions, data=options.data), chosen):
            changed = bool(known) and line not in known
            differs |= changed
            print(f"{line}{'  differs' if changed else ''}", flush=True)
    sys.exit(1 if differs else 0)


if __name__ == "__main__":
    main()
