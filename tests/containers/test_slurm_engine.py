"""What the engine makes of Slurm's text: jobs, their ends, and the scripts that it submits."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.leasing.ends import WAS_KILLED, interpret_exit
from containers.runtime import EventKind, Lease
from containers.slurm import lease_output
from containers.slurm.cluster import SlurmCluster, SlurmSite
from containers.slurm.engine import SlurmEngine
from containers.slurm.inventory import SlurmNode
from containers.slurm.lease_jobs import COLUMNS
from containers.slurm.parsing import SEPARATOR
from containers.slurm.rendering import LeaseMark, check_needs, read_mark, render
from harness.waiting import wait_for
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, make_timed_job
from predictor.options import JobOptions
from tests.containers.driver import job
from tests.containers.slurm_scripts import Scripts
from tests.containers.test_slurm_parsing import line as node_line

IDLE = frozenset({"idle"})
NODES = (
    *(SlurmNode(name, "a100", 4, 0, IDLE) for name in ("n1", "n2")),
    SlurmNode("n3", "gpu", 2, 0, IDLE),
)


def make_cluster(storage: Path, commands: Path | None = None) -> SlurmCluster:
    site = SlurmSite(
        storage, "gpu", ("--account=a",), commands, ("train",), Path("/data"), 8, 2**34
    )
    return SlurmCluster(site, NODES)


def line(mark: LeaseMark, state: str, **fields: str) -> str:
    """A row of `squeue`."""
    row = {
        **{"JobID": "7", "Name": mark.job_name, "State": state, "Reason": "None"},
        **{"SubmitTime": "1700000000", "RestartCnt": "0", "exit_code": "0"},
        "Comment": mark.comment,
    } | fields
    fields = [
        row[name].encode()[:width].ljust(width) + SEPARATOR.encode()
        for name, width in COLUMNS.items()
    ]
    return (b"".join(fields) + b"\n").decode(errors="surrogateescape")


def write_squeue(folder: Path, text: str) -> None:
    (folder / "answer").write_text(text, errors="surrogateescape")
    (folder / "squeue").write_text(f'#!/bin/sh\ncat "{folder}/answer"\n')
    (folder / "squeue").chmod(0o755)


def test_of_a_long_output_the_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease_output, "MOST_LOG", 100)
    path = tmp_path / "job-1.log"
    path.write_text("\n--- before.1\nearlier\n\n--- lease.1\n" + "old\n" * 30)
    kept = path.read_text()
    with path.open("a") as program:  # which goes on to write
        lease_output.bound_log(path, "lease.1")
        assert path.read_text() == kept
        program.write("new\n" * 30)
        program.flush()
        lease_output.bound_log(path, "lease.1")
        program.write("last\n")
    assert path.read_text() == "\n--- lease.1\n" + "new\n" * 25 + "last\n"


STATES = {
    ("COMPLETED", "0", "None"): (EventKind.FINISHED, ""),
    ("FAILED", "256", "NonZeroExitCode"): (
        EventKind.CRASHED,
        "exited with code 1: --- no such data",
    ),
    ("FAILED", "9", "RaisedSignal:9(Killed)"): (EventKind.STOPPED, WAS_KILLED),
    ("FAILED", "0", "JobLaunchFailure"): (EventKind.STOPPED, WAS_KILLED),
    ("OUT_OF_MEMORY", "9", "OutOfMemory"): (
        EventKind.CRASHED,
        "out of memory: its limit is 32 GiB",
    ),
    ("TIMEOUT", "0", "TimeLimit"): (EventKind.LOST, "it reached the time limit of its Slurm job"),
    ("NODE_FAIL", "1", "NodeDown"): (EventKind.LOST, "its node failed"),
    ("PREEMPTED", "15", "None"): (EventKind.LOST, "Slurm preempted it"),
    ("CANCELLED", "0", "None"): (
        EventKind.STOPPED,
        "stopped without being asked to from here (exit code 143)",
    ),
    ("SPECIAL_EXIT", "0", "JobHeldUser"): (EventKind.LOST, "Slurm requeued it"),
}
"""Kind and words of ends, by state, status and reason of a job."""


@pytest.mark.process
def test_each_state_of_a_job_has_its_kind_and_words(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path, tmp_path)
    marks = [LeaseMark("r", number, 3, 1, (0, 4)) for number in range(len(STATES))]
    rows = []
    for mark, (state, status, reason) in zip(marks, STATES, strict=True):
        folder = cluster.folder("r", mark.job_id)
        folder.mkdir(parents=True)
        (folder / "lease").write_text(mark.lease)
        said = f"before\n--- {mark.lease}\n--- no such data\nslurmstepd: error: ended\n"
        folder.with_suffix(".log").write_text(said)
        number = str(mark.job_id + 1)
        rows.append(line(mark, state, exit_code=status, Reason=reason, JobID=number))
    running = LeaseMark("r", 100, 0, 1, (8,))
    stale = LeaseMark("r", 0, 2, 1, (0, 4))
    others = [LeaseMark("other", 5, 3, 1, (0,)), LeaseMark("r", 101, 3, 1, (1,))]
    rows += [line(running, "COMPLETING"), line(stale, "COMPLETED"), line(others[0], "RUNNING")]
    rows += [line(others[1], "RUNNING", Name="by-hand"), line(running, "RUNNING", Comment="mine")]
    write_squeue(tmp_path, "".join(rows))
    with closing(SlurmEngine(cluster, "r")) as engine:
        found = engine.look()
        assert {entry.job_id for entry in found} == {*range(len(STATES)), 100}
        (alive,) = [entry for entry in found if entry.running]
        assert (alive.job_id, alive.node, alive.name) == (100, 2, running.lease)
        assert [(e.node, e.rank) for e in found if e.job_id == 1] == [(0, 0), (1, 1)]
        first = {entry.job_id: entry for entry in found if entry.rank == 0}
        ends = [interpret_exit(engine.exit(first[mark.job_id]), engine.program) for mark in marks]
        assert ends == [*STATES.values()]
        write_squeue(tmp_path, line(running, "PENDING", RestartCnt="1"))
        (again,) = [e for e in engine.look(again=True) if e.job_id == 100]
        assert not again.running
        end = interpret_exit(engine.exit(again), engine.program)
        assert end == (EventKind.LOST, "Slurm requeued it")


@pytest.mark.process
def test_jobs_of_others_may_have_any_name_and_comment(tmp_path: Path) -> None:
    ours = LeaseMark("r", 1, 0, 1, (0,))
    rows = [
        line(ours, "FAILED", Name=text, Comment=text, Reason=text, exit_code="?")
        for text in ("größe", "a\nb", f"a{SEPARATOR}b", "ü" * 2000)
    ]
    write_squeue(tmp_path, "".join([*rows, line(ours, "RUNNING")]))
    with closing(SlurmEngine(make_cluster(tmp_path, tmp_path), "r")) as engine:
        assert [entry.name for entry in engine.look()] == [ours.lease]


@pytest.mark.process
def test_a_refused_listing_is_asked_for_again(tmp_path: Path) -> None:
    mark, said = LeaseMark("r", 1, 0, 1, (0,)), list[str]()
    (tmp_path / "squeue").write_text("#!/bin/sh\necho 'error: Access denied' >&2; exit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    cluster = make_cluster(tmp_path, tmp_path)

    def later(seconds: float) -> None:
        write_squeue(tmp_path, line(mark, "RUNNING"))

    with closing(SlurmEngine(cluster, "r", sleep=later, report=said.append)) as engine:
        assert [entry.name for entry in engine.look()] == [mark.lease]
    assert said == ["Slurm does not answer; waiting for it: squeue: Access denied"]


@pytest.mark.process
def test_an_answer_of_before_a_submission_does_not_lose_it(tmp_path: Path) -> None:
    """`squeue` answers for what it saw when it was called, while a job is submitted."""
    mark = LeaseMark("r", 1, 0, 1, (0,))
    write_squeue(tmp_path, line(mark, "RUNNING"))
    (tmp_path / "squeue").write_text(
        f'#!/bin/sh\ncd "{tmp_path}"\nif test -e sent; then exec cat answer; fi\n'
        "touch asked; until test -e sent; do sleep 0.01; done; sleep 0.3\n"
    )
    for name, script in {"sbatch": "touch sent; echo 7", "sacct": "true"}.items():
        (tmp_path / name).write_text(f'#!/bin/sh\ncd "{tmp_path}"\n{script}\n')
        (tmp_path / name).chmod(0o755)
    cluster, spec = make_cluster(tmp_path, tmp_path), job(1)
    cluster.folder("r", 1).mkdir(parents=True)
    with closing(SlurmEngine(cluster, "r")) as engine, ThreadPoolExecutor() as pool:
        engine._looked = engine._now()
        attempt = engine.prepare(0, Lease(1, (0,)), spec, shared=False)
        asked = pool.submit(engine.look, again=True)
        wait_for((tmp_path / "asked").exists)
        engine.start(attempt)
        asked.result()
        assert [entry.running for entry in engine.look()] == [True]


@pytest.mark.process
def test_an_uneven_gang_is_no_load_of_others(tmp_path: Path) -> None:
    """Slurm gave it three and two GPUs, not four and one."""
    mark = LeaseMark("r", 1, 0, 1, (0, 1, 2, 3, 4))
    allocated = " Nodes=n1 CPU_IDs=0-2 Mem=0 GRES=gpu:a100:3(IDX:0-2)"
    allocated += "  Nodes=n2 CPU_IDs=0-1 Mem=0 GRES=gpu:a100:2(IDX:0-1)"
    nodes = [("n1", "gpu:a100:4", "gpu:a100:3"), ("n2", "gpu:a100:4", "gpu:a100:2")]
    shown = [node_line(*node, "mixed", "none") for node in (*nodes, ("n3", "gpu:2", "gpu:0"))]
    Scripts(tmp_path).say(
        squeue=line(mark, "RUNNING"), sinfo="".join(shown), scontrol=f"JobId=7{allocated}"
    )
    with closing(SlurmEngine(make_cluster(tmp_path, tmp_path), "r")) as engine:
        assert engine.problems() == {}


def test_a_lease_is_rendered_as_a_job_of_its_nodes(tmp_path: Path) -> None:
    cluster = make_cluster(tmp_path)
    one = render(cluster, LeaseMark("r", 5, 7, 2, (1, 2, 3)), job(5, gpus=3))
    assert {
        *("--account=a", "--partition=gpu", "--cpus-per-gpu=8", f"--mem-per-gpu={2**24}K"),
        *("--job-name=shockwave-r-job-5-round-7", "--comment=shockwave-lease:r:5:7:2:1-3"),
        *("--dependency=singleton", "--no-requeue", "--nodes=1", "--nodelist=n1"),
        *("--gres=gpu:a100:3", "--signal=B:TERM@30", f"--output={tmp_path}/r/job-5.log"),
    } <= {*one.options}
    assert one.script.endswith(f"\nexec train {tmp_path}/r/job-5\n")
    assert "export SHOCKWAVE_LEASE=shockwave-r-job-5-round-7.2\n" in one.script
    assert "export SHOCKWAVE_DATA_FOLDER=/data\n" in one.script
    assert "export LOCAL_WORKERS=3\n" in one.script
    untyped = render(cluster, LeaseMark("r", 5, 7, 1, (9,)), job(5))
    assert {"--nodelist=n3", "--gres=gpu:1"} <= {*untyped.options}
    gang = render(cluster, LeaseMark("r", 5, 7, 1, (2, 3, 4, 5)), job(5, gpus=4))
    assert {"--nodes=2", "--nodelist=n1,n2", "--gres=gpu:a100:2"} <= {*gang.options}
    assert "--signal=TERM@30" in gang.options
    assert "LOCAL_WORKERS=2" in gang.script
    uneven = render(cluster, LeaseMark("r", 5, 7, 1, (3, 4, 5)), job(5, gpus=3))
    assert "--gpus=a100:3" in uneven.options
    assert "LOCAL_WORKERS=$(echo" in uneven.script


def test_commands_and_variables_are_never_read_by_the_shell(tmp_path: Path) -> None:
    evil = "'; rm -rf / #"
    spec = replace(job(5), command=("echo", evil), environment=(f"A={evil}",))
    script = render(make_cluster(tmp_path), LeaseMark("r", 5, 7, 1, (0,)), spec).script
    quoted = """''"'"'; rm -rf / #'"""
    assert f"exec echo {quoted}\n" in script
    assert f"export A={quoted}\n" in script


@given(
    st.builds(
        LeaseMark,
        st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,20}", fullmatch=True),
        st.integers(0, 10**6),
        st.integers(0, 10**6),
        st.integers(1, 99),
        st.sets(st.integers(0, 300), min_size=1).map(lambda gpus: tuple(sorted(gpus))),
    )
)
def test_a_comment_is_read_as_written(mark: LeaseMark) -> None:
    assert read_mark(mark.comment) == mark


def test_jobs_that_slurm_cannot_run_are_refused() -> None:
    timed = make_timed_job(1, JobKind.OPAQUE, Demand.gang(1), 60.0, 0.0)
    check_needs(("train",), [job(0), replace(timed, command=("true",))])
    check_needs((), [replace(job(0), command=("true",))])
    for spec, said in (
        (replace(job(3), image="a"), "job 3, image: has no meaning on Slurm; .*apptainer exec"),
        (replace(job(3), options=JobOptions(volumes=("v",))), "job 3, volumes: has no meaning"),
        (replace(job(3), options=JobOptions(network="n")), "job 3, network: has no meaning"),
        (timed, "job 1, command: is missing"),
    ):
        with pytest.raises(InputError, match=said):
            check_needs(("train",), [spec])
    with pytest.raises(InputError, match="give the job a command, or the cluster file a trainer"):
        check_needs((), [job(0)])
