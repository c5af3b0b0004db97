"""Cost of a round's dispatch on a real Docker daemon, against the same bare calls.

    python -m benchmarks.dispatch [--containers 32] [--repeats 5] [--json]

A round preempts CONTAINERS jobs and launches as many others. `bare` is a script that makes
the same Docker calls (stop, remove, create, start) with the same options from a pool of
threads, `runtime` is `DockerRuntime.preempt` and `.launch`; `ratio` is `runtime` over `bare`,
both medians of REPEATS. `idle` is a whole round under Shockwave, from collect to record, in
which nothing changes and all CONTAINERS jobs run on, less the wait for its end. The containers
wait for SIGTERM and exit at once. Exit code 1 if the ratio is above 1.5 or `idle` above 0.5 s.
Needs root, dockerd and iptables.
"""

import argparse
import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import docker

from containers.clock import RunClock
from containers.docker.docker_runtime import DockerFactory
from containers.docker.nodes import ContainerLimits, Gpu, Node, Nodes
from containers.docker.rendering import render
from containers.runtime import Lease, ResumePoint, Terms
from containers.virtual.truth import GroundTruth
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from harness.dockerd import dockerd, missing, mounts
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile
from tasks.record import RuntimeKind, Settings, make_pool
from tasks.round import run_round
from tasks.sources import Workload
from warehouse.store.writer import Writer

WAITS = ["/bin/sh", "-c", "trap 'exit 75' TERM; sleep 100000 & wait"]
IMAGE = "shockwave-waits:bench"
THREADS = 32
EPOCHS = 1000
"""Of a job, which trains none."""
MOST_RATIO = 1.5
MOST_IDLE_SECONDS = 0.5


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--containers", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    if lacking := missing():
        print(f"error: {lacking}", file=sys.stderr)
        return 2
    with dockerd() as daemon, tempfile.TemporaryDirectory() as storage:
        os.chmod(storage, 0o755)
        daemon.add_image(IMAGE, WAITS)
        client = docker.DockerClient(daemon.endpoint, max_pool_size=THREADS)
        figures = measured(client, daemon.endpoint, Path(storage), asked.containers, asked.repeats)
    if asked.json:
        print(json.dumps(figures))
    else:
        for name, value in figures.items():
            print(f"{name:24} {value:.3f}")
    return int(figures["ratio"] > MOST_RATIO or figures["idle_s"] > MOST_IDLE_SECONDS)


def measured(
    client: Any, endpoint: str, storage: Path, count: int, repeats: int
) -> dict[str, float]:
    gpus = tuple(Gpu(cpus=0.0, cpuset="") for _ in range(count))
    node = Node("here", endpoint, "cpu", IMAGE, gpus)
    limits = ContainerLimits(2**28, 64, 2**24)
    nodes = Nodes((node,), storage, "65534:65534", mounts=mounts(), limits=limits)
    specs = [_spec(job_id) for job_id in range(count * (repeats + 1))]
    clock = RunClock()
    standing = ResumePoint(jobs=tuple(specs))
    runtime = DockerFactory(nodes, clock).open(Terms("dispatch", 0.0), standing)
    leases = [Lease(job, (job % count,)) for job in range(len(specs))]
    bare, ours = [], []
    held = _bare_start(client, nodes, 0, count)
    runtime.launch(0, leases[:count])
    for repeat in range(1, repeats + 1):  # by turns: a machine's speed drifts
        started = perf_counter()
        _each(_bare_stop, held)
        held = _bare_start(client, nodes, repeat, count)
        bare.append(perf_counter() - started)
        before = (repeat - 1) * count
        started = perf_counter()
        runtime.preempt({lease.job_id: "" for lease in leases[before : before + count]})
        runtime.launch(repeat, leases[before + count : before + 2 * count])
        ours.append(perf_counter() - started)
    _each(_bare_stop, held)
    last = repeats * count
    runtime.preempt({lease.job_id: "" for lease in leases[last:]})
    runtime.close()
    return {
        "containers": count,
        "bare_s": median(bare),
        "runtime_s": median(ours),
        "ratio": median(ours) / median(bare),
        "idle_s": median(_idle(nodes, count, repeats)),
    }


def _idle(nodes: Nodes, count: int, repeats: int) -> list[float]:
    """Seconds of rounds in which nothing changes."""
    specs = tuple(_spec(job_id) for job_id in range(count))
    regimes = (Regime(16, EPOCHS),)
    truths = tuple(GroundTruth(spec.job_id, 1.0, regimes, regimes) for spec in specs)
    workload = Workload("idle", specs, truths, Profile.of_type({("LM", 16, 1): 1.0}))
    settings = Settings("shockwave", make_pool(count, count), runtime=RuntimeKind.DOCKER)
    start = make_start(workload, settings)
    taken = []
    with Writer(nodes.storage / "warehouse", start) as writer:
        patient = replace(nodes, hung_rounds=repeats + 2)  # its jobs give no sign of life
        clock = RunClock()
        runtime = DockerFactory(patient, clock).open(Terms(writer.run, 0.0), ResumePoint())
        run = prepare(start).on(runtime, writer, writer.run)
        run_round(run)
        for _ in range(repeats):
            started = perf_counter()
            this = run_round(run)
            taken.append(perf_counter() - started)
            if this.record.events or len(this.plan.placement) < count:
                raise RuntimeError(f"jobs did not run on: {this.observation} {this.record.events}")
        runtime.preempt({spec.job_id: "" for spec in specs})
        runtime.close()
    return taken


def _spec(job_id: int) -> JobSpec:
    return JobSpec(job_id, "LM", 16, 16, Demand.gang(1), Mode.STATIC, EPOCHS, 16, 0.0)


def _bare_start(client: Any, nodes: Nodes, repeat: int, count: int) -> list[Any]:
    def start(place: int) -> Any:
        (rendered,) = render(nodes, "bare", repeat, Lease(repeat * count + place, (place,)))
        nodes.folder("bare", repeat * count + place).mkdir(parents=True)
        container = client.containers.create(name=rendered.name, **rendered.options)
        container.start()
        return container

    return _each(start, range(count))


def _bare_stop(container: Any) -> None:
    container.stop(timeout=30)
    container.remove(force=True, v=True)


def _each(work: Any, items: Any) -> list[Any]:
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(work, items))


if __name__ == "__main__":
    sys.exit(main())
