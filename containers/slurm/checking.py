"""Checks of a Slurm that is to run leases: its settings, and a job on each node."""

import json
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from uuid import uuid4

from containers.leasing.checking import Finding, find
from containers.leasing.ends import interpret_exit
from containers.leasing.engine import STOPPED, Attempt, Refused
from containers.leasing.folder import describe_job, make_folder, replace_file
from containers.runtime import EventKind, Lease
from containers.slurm.cluster import SlurmCluster
from containers.slurm.commands import Commands
from containers.slurm.engine import SlurmEngine
from containers.slurm.hand_over import read_config
from containers.slurm.inventory import SlurmNode
from containers.slurm.parsing import SlurmAway
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, make_timed_job

PROBE = ("sh", "-c", 'touch "$SHOCKWAVE_JOB_FOLDER/seen" && printf "%s\\n" "$CUDA_VISIBLE_DEVICES"')
"""Command of a probe: it writes to its job's folder."""
LOOK_SECONDS = 0.5
"""Time between questions whether probes have ended."""


def check_cluster(cluster: SlurmCluster) -> list[Finding]:
    """Return the findings for the storage and Slurm's settings, then for each node."""
    findings = [
        find("storage", "writable", lambda: _check_storage(cluster)),
        find("slurm", "settings", lambda: _check_settings(cluster)),
    ]
    if findings[0].sound:
        findings += _check_nodes(cluster)
    return findings


def describe_slurm(node: SlurmNode) -> dict[str, str | int]:
    """Describe a node, for the profiles measured on it."""
    return {"node": node.name, "system": "Slurm"}


def _check_storage(cluster: SlurmCluster) -> str:
    path = cluster.storage / f".probe-{uuid4().hex}"
    try:
        path.mkdir(parents=True)
        path.rmdir()
    except OSError as error:
        problem = f"{error.strerror}: {cluster.storage}"
        raise InputError("storage", problem, "make it writable") from None
    return str(cluster.storage)


def _check_settings(cluster: SlurmCluster) -> str:
    """Check Slurm's settings on which leases depend."""
    try:
        text = Commands(cluster.site.commands).call("scontrol", "show", "config")
    except (SlurmAway, Refused) as error:
        raise InputError("slurm", str(error), "run it where scontrol works") from None
    values = read_config(text)
    again = values.get("RequeueExit", "")
    if str(STOPPED) in re.split(r"[^0-9]+", again):
        problem = f"RequeueExit is {again}, so Slurm requeues jobs that stopped with a checkpoint"
        raise InputError("slurm", problem, f"take {STOPPED} out of it in slurm.conf")
    shown = ("SLURM_VERSION", "KillWait", "MinJobAge", "ProctrackType")
    return ", ".join(f"{name} {values.get(name, 'unknown')}" for name in shown)


def _check_nodes(cluster: SlurmCluster) -> Iterator[Finding]:
    """Run a job on a GPU of each node that is in service."""
    run = f"probe-{uuid4().hex[:12]}"
    with closing(SlurmEngine(cluster, run)) as engine:
        problems = engine.problems()
        started: dict[int, Attempt] = {}
        refused: dict[int, str] = {}
        for place in range(len(cluster.nodes)):
            if place in problems:
                continue
            try:
                started[place] = _start(cluster, engine, run, place)
            except (Refused, OSError) as error:
                refused[place] = str(error)
        running = {entry.job_id for entry in engine.look(again=True) if entry.running}
        while running:
            time.sleep(LOOK_SECONDS)
            running = {entry.job_id for entry in engine.look(again=True) if entry.running}
        found = {entry.job_id: entry for entry in engine.look()}
        ends = {
            place: interpret_exit(
                engine.exit(found[place]) if place in found else None, engine.program
            )
            for place in started
        }
        engine.end(found.values(), 0.0)
        for place, name in enumerate(cluster.names):
            seen = (cluster.folder(run, place) / "seen").exists()
            yield _judge(name, problems.get(place) or refused.get(place, ""), ends.get(place), seen)
    shutil.rmtree(cluster.storage / run, ignore_errors=True)


def _start(cluster: SlurmCluster, engine: SlurmEngine, run: str, place: int) -> Attempt:
    spec = make_timed_job(place, JobKind.OPAQUE, Demand.gang(1), 60.0, 0.0)
    spec = replace(spec, command=PROBE)
    first = cluster.inventory.gpus_of(place).start
    attempt = engine.prepare(0, Lease(place, (first,)), spec, shared=False)
    folder = cluster.folder(run, place)
    make_folder(folder)
    replace_file(folder / "job.json", json.dumps(describe_job(spec, 1)))
    replace_file(folder / "lease", attempt.name)
    engine.start(attempt)
    return attempt


def _judge(name: str, problem: str, end: tuple[EventKind, str] | None, seen: bool) -> Finding:
    if problem or end is None:
        return Finding(name, "job", False, problem, "see scontrol show node")
    kind, reason = end
    if kind is not EventKind.FINISHED:
        return Finding(name, "job", False, reason, "compare the options under [slurm] with sbatch")
    if not seen:
        problem = "its job ran, and what it wrote is not in the storage of this machine"
        return Finding(name, "job", False, problem, "give a folder that all nodes share")
    return Finding(name, "job", True, "a job ran there and wrote to the storage")
