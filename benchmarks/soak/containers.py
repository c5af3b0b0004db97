"""Real containers under a soak: a Docker daemon that is restarted, its cluster, short jobs."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.faults.watch import Watch
from benchmarks.soak.hands import TENANTS
from flows.scheduler.options import ServiceOptions
from harness.dockerd import PLAIN, Dockerd, mounts, node_table, python

NODES, GPUS_PER_NODE = 4, 2
ROUND_SECONDS = 2.0
MOST_ACTIVE = 12
"""See `Place.most_active`: few, so that kills and restarts are spread over the soak."""

SAMPLES_PER_SECOND = 100.0


def options(daemon: Dockerd, folder: Path, policy: str, seed: int) -> ServiceOptions:
    """The settings of a service on nodes of one daemon, with emulated GPUs.

    Args:
        daemon: The daemon.
        folder: Where cluster file, profile and the jobs' storage are made.
        policy: The service's policy.
        seed: Its seed.
    """
    storage = folder / "jobs"
    storage.mkdir()
    read = ", ".join(f'"{path}"' for path in mounts())
    head = f"""storage = "{storage}"
user = "1000:1000"
images = ["{PLAIN}"]
mounts = [{read}]
grace_seconds = 10
[limits]
memory = "1g"
"""
    named = (f"n{number}" for number in range(NODES))
    nodes = [node_table(name, daemon.endpoint, GPUS_PER_NODE) for name in named]
    (cluster := folder / "cluster.toml").write_text(head + "".join(nodes))
    rates = {"('Recommendation (batch size 32)', 1)": {"null": SAMPLES_PER_SECOND / 32}}
    (profile := folder / "profile.json").write_text(json.dumps({"cpu": rates}))
    return ServiceOptions(
        policy=policy,
        seed=seed,
        cluster=cluster,
        profile=profile,
        round_seconds=ROUND_SECONDS,
        restart_seconds=1.0,
        driver="plain",
    )


def declared(rng: Random) -> dict[str, Any]:
    """A short job: eight of ten checkpointing, one opaque and one training."""
    tenant, drawn, seconds = rng.choice(TENANTS), rng.random(), rng.randint(2, 8)
    if drawn < 0.1:
        training = {"model": "Recommendation", "batch_size": 32, "epochs": rng.randint(2, 6)}
        return {**training, "samples_per_epoch": 256, "tenant": tenant}
    job = {"image": PLAIN, "tenant": tenant, "scale_factor": rng.choice((1, 1, 1, 2, 2, 4))}
    if drawn < 0.2:
        sleep = [python(), "-c", f"import time; time.sleep({seconds})"]
        return {**job, "kind": "opaque", "name": "sleep", "command": sleep, "max_seconds": 60}
    return {
        **job,
        "kind": "checkpointing",
        "name": "count",
        "command": [python(), "/opt/jobs/count.py"],
        "environment": {"TARGET": str(4 * seconds), "STEP": "0.25"},
        "max_seconds": 120,
    }


def restarting(daemon: Dockerd) -> Callable[[], None]:
    """What restarts the daemon; its containers end with it."""

    def restart() -> None:
        with daemon.stopped():
            pass

    return restart


@contextmanager
def watched(daemon: Dockerd) -> Iterator[Watch]:
    """Check continuously that no GPU or job is given twice."""
    watch = Watch(daemon)
    with watch.watching():
        yield watch
