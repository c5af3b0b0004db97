"""Cluster files of a Slurm, and a service on one."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from containers.slurm.cluster import SlurmSite
from flows.api.commands import ServiceCommands
from flows.api.job_logs import read_logs
from flows.explain.replay import replay
from flows.runs.cluster_file import read_site
from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from harness.dockerd import COUNTER, TRAINER, packages, python
from harness.slurm import Slurm
from predictor.errors import InputError
from tasks.record import RuntimeKind
from tests.containers.driver import job, long
from tests.flows.conftest import Command, assert_refused
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

WHOLE = """
storage = "/shared/jobs"
datasets = "/shared/data"
folder = "2g"
grace_seconds = 45
hung_rounds = 5
rendezvous_port = 12345

[slurm]
partition = "gpu"
options = ["--account=research", "--gres-flags=enforce-binding"]
trainer = ["python", "-m", "trainer"]
commands = "/opt/slurm/bin"
cpus_per_gpu = 8
memory_per_gpu = "32g"
start_seconds = 90
"""


def test_the_example_of_the_docs(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "slurm.md").read_text()
    example = re.search(r"```toml\n(.*?)```", page, re.DOTALL)
    assert example is not None
    (path := tmp_path / "cluster.toml").write_text(example[1])
    site = read_site(path)
    assert isinstance(site, SlurmSite)
    assert (site.partition, site.options) == ("gpu", ("--account=research",))
    assert site.trainer[1:] == ("-m", "trainer")


def test_every_field_says_what_it_says(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(WHOLE)
    assert read_site(path) == SlurmSite(
        storage=Path("/shared/jobs"),
        partition="gpu",
        options=("--account=research", "--gres-flags=enforce-binding"),
        commands=Path("/opt/slurm/bin"),
        trainer=("python", "-m", "trainer"),
        datasets=Path("/shared/data"),
        cpus_per_gpu=8,
        memory_per_gpu=32 * 2**30,
        grace_seconds=45.0,
        start_seconds=90.0,
        hung_rounds=5,
        folder_bytes=2 * 2**30,
        rendezvous_port=12345,
    )


@pytest.mark.parametrize(
    ("field", "wrong", "said"),
    [
        ('partition = "gpu"', 'partition = "a b"', "partition"),
        *(
            ("--account=research", option, f"'{option}' would change what leases ask for; leave")
            for option in ("--array=1-9", "--arr=1-9", "--nodel=n1", "--exclusive", "--hold")
        ),
        *(
            ("--account=research", option, f"'{option}' would change")
            for option in ("--gpus-per-node=1", "--wait", "--test-only", "--wra=true")
        ),
        ("--account=research", "-x", "options"),
        ('"/shared/jobs"', '"/shared/%j"', "has a '%'; give a path without"),
        ("start_seconds", "starts", "starts"),
        ("hung_rounds = 5", 'user = "1:1"', "user"),
    ],
)
def test_wrong_fields_are_refused(
    here: Command, tmp_path: Path, field: str, wrong: str, said: str
) -> None:
    (path := tmp_path / "cluster.toml").write_text(WHOLE.replace(field, wrong))
    assert_refused(here("cluster", "check", path), "cluster.toml", said)


@pytest.mark.process
def test_a_slurm_that_is_not_there_is_refused(here: Command, tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(WHOLE.replace("/opt/slurm/bin", str(tmp_path)))
    assert_refused(here("cluster", "check", path), "slurm: ", "run it where sinfo works")
    assert_refused(here("cluster", "pull", path), "slurm: is no Docker host")


def write_file(lab: Slurm, storage: Path, folder: Path) -> Path:
    """A cluster file of the lab, on which jobs count."""
    trainer = ["/usr/bin/env", f"PYTHONPATH={TRAINER.parent}:{packages()}", python(), str(COUNTER)]
    (path := folder / "cluster.toml").write_text(
        f'storage = "{storage}"\ngrace_seconds = 10\n[slurm]\npartition = "gpu"\n'
        f'commands = "{lab.commands()}"\ntrainer = {json.dumps(trainer)}\n'
    )
    return path


def test_each_node_is_checked_by_a_job(
    lab: Slurm, here: Command, storage: Path, tmp_path: Path
) -> None:
    lab.run("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=a fan is broken")
    path = write_file(lab, storage, tmp_path)
    ran = here("cluster", "check", path, "--json")
    assert ran.code == 1
    found = {row["node"]: row for row in map(json.loads, ran.out.splitlines())}
    assert {name for name, row in found.items() if not row["sound"]} == {"n2"}
    assert found["n2"]["found"] == "Slurm says drain: a fan is broken"
    assert found["n3"]["found"] == "a job ran there and wrote to the storage"
    assert "KillWait" in found["slurm"]["found"]
    assert list(storage.iterdir()) == []
    path.write_text(path.read_text().replace('"gpu"', '"cpu"'))
    assert_refused(here("cluster", "check", path), "slurm: has no nodes with GPUs")


def test_a_service_runs_jobs_on_a_slurm(lab: Slurm, storage: Path, tmp_path: Path) -> None:
    rates = {f"('Recommendation (batch size 32)', {gpus})": {"null": 40.0} for gpus in (1, 2)}
    (profile := tmp_path / "profile.json").write_text(json.dumps({"a100": rates, "v100": rates}))
    options = ServiceOptions(
        cluster=write_file(lab, storage, tmp_path),
        profile=profile,
        round_seconds=2.0,
        restart_seconds=0.5,
        driver="plain",
    )

    def drive(rounds: int) -> str:
        with open_run(tmp_path, inbox, options) as run:
            schedule(run, tmp_path, rounds=rounds)
            return run.name

    with Inbox(tmp_path) as inbox:
        for spec in (job(1, epochs=8), long(2, gpus=2), job(3, command=("echo", "hello"))):
            inbox.submit(spec)
        drive(1)
        before = lab.run("squeue", "-h", "-o", "%A %j").splitlines()
        name = drive(6)  # it goes on with the jobs that run
        (kept,) = [line for line in before if line.endswith(f"shockwave-{name}-job-2-round-0")]
        assert kept in lab.run("squeue", "-h", "-o", "%A %j").splitlines()
    with ServiceCommands(tmp_path) as commands:
        assert [row.name for row in commands.list_nodes()] == ["n1", "n2", "n3", "n4"]
        with pytest.raises(InputError, match="has the nodes that it began with"):
            commands.add_node({"name": "n5"})
        with pytest.raises(InputError, match="image: has no meaning on Slurm"):
            commands.check_job(replace(job(4), image="a"))
        rows = {row.job_id: row.status for row in commands.list_jobs()}
        assert (rows[1], rows[2]) == ("finished", "runs")
    assert Reader(tmp_path).header(name).settings.runtime == RuntimeKind.SLURM
    site = read_site(options.cluster or Path())
    assert b"counts from step 0" in b"".join(read_logs(site, name, 1))
    assert b"hello" in b"".join(read_logs(site, name, 3))
    assert audit(tmp_path, name).findings == ()
    assert replay(name, tmp_path).differences == []


def test_throughputs_are_measured_on_a_slurm(
    lab: Slurm, here: Command, storage: Path, tmp_path: Path
) -> None:
    path, out = write_file(lab, storage, tmp_path), tmp_path / "table.json"
    asked = ("--models", "Recommendation", "--batch-sizes", "32", "--steps", "4", "--epochs", "2")
    measure = ("cluster", "profile", "--cluster", path, "--out", out, *asked, "--together")
    assert_refused(here(*measure, "--pairs"), "pairs: cannot be measured")
    assert here(*measure).code == 0
    table = json.loads(out.read_text())
    key = "('Recommendation (batch size 32)', 1)"
    assert {kind: 0 < table[kind][key]["null"] <= 20.0 for kind in ("a100", "v100")} == {
        "a100": True,
        "v100": True,
    }
