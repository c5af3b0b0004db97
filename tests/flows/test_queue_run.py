"""A service that starts users' own Slurm jobs."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from containers.runtime import EventKind
from flows.api.commands import ServiceCommands
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from harness.slurm import Slurm
from harness.slurm_files import GPUS
from predictor.errors import InputError
from tasks.commands import CommandKind
from tasks.run import Run
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

SILENT = ("--parsable", "--chdir=/", "--output=/dev/null", "--time=5")
OPTIONS = ServiceOptions(
    policy="fifo", driver="plain", partition="gpu", round_seconds=4.0, restart_seconds=0.5
)
MOST_ROUNDS = 60
"""Bound on rounds, far above those that are needed."""

SAVER = """#!/bin/sh
# Counts to 20 in ten seconds, from where it was stopped.
n=$(cat {folder}/at 2>/dev/null || echo 0)
trap 'echo $n >{folder}/at; exit 0' TERM
while [ $n -lt 20 ]; do sleep 0.5; n=$((n + 1)); done
echo $n $SLURM_RESTART_COUNT >{folder}/done
"""


@pytest.fixture
def closed(lab: Slurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[Slurm]:
    """A Slurm whose commands are those of its operator."""
    with monkeypatch.context() as patched:
        patched.setenv("PATH", str(lab.commands("operator")), prepend=":")
        yield lab


@contextmanager
def _service(warehouse: Path) -> Iterator[tuple[Run, Inbox]]:
    with Inbox(warehouse) as inbox, open_run(warehouse, inbox, OPTIONS) as run:
        yield run, inbox


def _list_opaque(run: Run) -> list[int]:
    """Jobs with a lease whose owners did not say that they save."""
    return [job for job in run.state.leases if not run.state.beliefs[job].spec.preemptible]


def _submit(lab: Slurm, user: str, *options: str, work: str = "sleep 3") -> str:
    return lab.run("sbatch", *SILENT, *options, f"--wrap={work}", user=user).strip()


def _used(lab: Slurm) -> dict[str, int]:
    """GPUs in use by node."""
    used = dict[str, int]()
    for line in lab.run("sinfo", "-h", "-N", "-O", "NodeList:20,GresUsed:60").splitlines():
        node, gres = line.split()
        used[node] = int(gres.split(":")[2].partition("(")[0])
    return used


def _states(lab: Slurm) -> dict[str, str]:
    shown = lab.run("squeue", "-r", "-h", "--states=all", "-o", "%i %T")
    return dict(line.split() for line in shown.splitlines())


@pytest.mark.process
def test_users_jobs_are_started_placed_preempted_and_left_alone(
    closed: Slurm, storage: Path, tmp_path: Path
) -> None:
    storage.chmod(0o777)
    script = storage / "saver.sh"
    script.write_text(SAVER.format(folder=storage))
    comment = "--comment=shockwave:checkpointing"
    saver = closed.run(
        "sbatch", *SILENT, "--gpus=2", comment, "-Jsaver", str(script), user="alice"
    ).strip()
    gang = _submit(closed, "alice", "-N2", "--gpus-per-node=4", "-Jgang")
    array = _submit(closed, "alice", "--array=1-3%2", "--gpus=1")
    typed = _submit(closed, "bob", "--gpus=v100:2")
    after = _submit(closed, "bob", "--gres=gpu:a100:1", f"--dependency=afterok:{typed}")
    others = [_submit(closed, "bob", f"--gpus={gpus}") for gpus in (1, 2, 3, 4)]
    without = _submit(closed, "alice")
    gone = _submit(closed, "bob", "--gpus=1", "-Jgone", work="sleep 600")
    tasks = [f"{array}_{task}" for task in (1, 2, 3)]
    all_jobs = {saver, gang, *tasks, typed, after, *others, without}

    with pytest.raises(RuntimeError, match="Invalid qos"):
        closed.run("scontrol", "update", f"JobId={gang}", "QOS=run", user="alice")
    with _service(tmp_path) as (run, inbox):
        name = run.name
        with pytest.raises(InputError, match="claimed by another service"), _service(storage):
            pass
        for _ in range(MOST_ROUNDS):
            schedule(run, tmp_path, rounds=1)
            assert max(_used(closed).values()) <= GPUS
            states = _states(closed)
            if states[saver] == "RUNNING" and (kept := _list_opaque(run)):
                break
        # What its owner did not offer is not taken back, at once and in the next round.
        node = run.header.settings.inventory.node(run.state.leases[kept[0]][0])
        orders = {CommandKind.HOLD: kept[0], CommandKind.REQUEUE: kept[0], CommandKind.DRAIN: node}
        with ServiceCommands(tmp_path) as commands:
            for kind, target in orders.items():
                with pytest.raises(InputError, match="did not say that it saves"):
                    commands.command(kind, str(target))
        late = [inbox.command(kind, target) for kind, target in orders.items()]
        (first,) = inbox.find_all("saver")
        assert first.job
        # Nobody but Slurm's users submits, and nobody in the name of another's job.
        forged = inbox.submit(replace(first.job, tenant="production"), by="mallory")
        inbox.command(CommandKind.REQUEUE, first.number)
        closed.run("scancel", gone, user="bob")
        schedule(run, tmp_path, rounds=1)
    with _service(tmp_path) as (run, _):  # another scheduler goes on
        assert run.name == name
        for _ in range(MOST_ROUNDS):
            schedule(run, tmp_path, rounds=1)
            assert max(_used(closed).values()) <= GPUS
            states = _states(closed)
            if {states.get(job) for job in all_jobs} == {"COMPLETED"} and not run.state.beliefs:
                break
    assert {job: states.get(job) for job in all_jobs} == dict.fromkeys(all_jobs, "COMPLETED")
    assert states[gone] == "CANCELLED"
    counted, restarts = (storage / "done").read_text().split()
    assert counted == "20"
    assert int(restarts) >= 1

    records = [record for record, _ in Reader(tmp_path).records(name)]
    specs = {spec.job_id: spec for record in records for spec in record.arrivals}
    ends = {e.job_id: e.kind for record in records for e in record.finished if e.ends_job}
    taken = {c.number: c for record in records for c in record.commands}
    assert "does not wait in Slurm" in taken[forged.number].reason
    for entry in late:
        assert "did not say that it saves" in taken[entry.number].reason
    # The job without GPUs was none of Shockwave's.
    assert len(specs) == len(all_jobs)
    named = {spec.name: number for number, spec in specs.items()}
    assert ends.pop(named["gone"]) is EventKind.WITHDRAWN
    assert {*ends.values()} == {EventKind.FINISHED}
    assert {spec.tenant for spec in specs.values()} == {"research", "production"}
    assert {by for record in records for by in record.submitters} == {"alice", "bob"}
    events = [(e.job_id, e.kind) for record in records for e in record.events]
    assert (named["saver"], EventKind.PREEMPTED) in events
    assert {job for job, kind in events if kind is EventKind.PREEMPTED} == {named["saver"]}
    assert audit(tmp_path, name).findings == ()
