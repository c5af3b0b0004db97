"""Daemons of other machines run jobs like the local daemon, and reject strangers."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from containers.docker import daemon as containers_docker
from containers.runtime import EventKind
from harness.counting import CHECKPOINT
from harness.dockerd import COUNTING, Dockerd, cluster, dockerd, mounts, with_slots
from harness.endpoints import MOST_STARTS, PORT, Authority, Sshd, missing, sshd, swarm, verified
from harness.waiting import HANG_SECONDS, wait_for
from tests.containers.driver import driven, job, long
from tests.containers.test_checking import findings
from tests.daemons import give_up

REPOSITORY = Path(__file__).parents[2]
CLUSTER = """
storage = "{storage}/jobs"
hung_rounds = 1000
user = "1000:1000"
mounts = {mounts}
[limits]
memory = "1g"
pids = 64
scratch = "64m"
[[nodes]]
name = "far"
endpoint = "tcp://127.0.0.1:{port}"
tls = "{tls}"
gpu_type = "cpu"
image = "{image}"
slots = [{{ cpus = 1.0 }}]
"""
DECLARED = '{"samples_per_epoch": 64, "max_batch_size": 32}'
JOB = f"Recommendation (batch size 32)\t{DECLARED}\t\t\t0\t6\t1\tstatic\t1\t\t\t0\n"
RATES = {"cpu": {"('Recommendation (batch size 32)', 1)": {"null": 20.0}}}


@pytest.fixture(scope="module", autouse=True)
def _needed() -> None:
    if lacking := missing():
        give_up(lacking)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "ours")


@pytest.fixture(scope="module")
def far(daemon: Dockerd, authority: Authority) -> Iterator[Dockerd]:
    """A daemon beside the one of all tests, behind TLS."""
    with ExitStack() as stack:
        yield stack.enter_context(dockerd(*verified(authority.issue("server", "serverAuth"))))


@pytest.fixture
def server(daemon: Dockerd, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Sshd]:
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    with sshd(daemon, tmp_path) as started:
        yield started


def shockwave(
    far: Dockerd, storage: Path, tls: Path, *command: str
) -> "subprocess.CompletedProcess[str]":
    """Run the command line on the daemon's machine, with a cluster file `far.toml`."""
    own = CLUSTER.format(
        storage=storage, mounts=[*map(str, mounts())], port=PORT, tls=tls, image=COUNTING
    )
    (storage / "far.toml").write_text(own)
    program = [sys.executable, "-c", "from flows.cli.main import main; main()"]
    return subprocess.run(
        far.within(*program, *command),
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "REQUESTS_CA_BUNDLE": "/nowhere"},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


def test_jobs_run_behind_tls(far: Dockerd, storage: Path, authority: Authority) -> None:
    tls, file = authority.issue("client", "clientAuth"), str(storage / "far.toml")
    checked = shockwave(far, storage, tls, "cluster", "check", file, "--json")
    found = [json.loads(line) for line in checked.stdout.splitlines()]
    assert checked.returncode == 0, (found, checked.stderr)
    endpoint = next(row["found"] for row in found if row["check"] == "endpoint")
    assert endpoint.endswith(f"at tcp://127.0.0.1:{PORT}")

    (storage / "jobs.trace").write_text(JOB)
    (storage / "rates.json").write_text(json.dumps(RATES))
    ran = shockwave(
        *(far, storage, tls, "cluster", "run", "--cluster", file, "--policy", "fifo"),
        *("--trace", str(storage / "jobs.trace"), "--profile", str(storage / "rates.json")),
        *("--round-seconds", "1", "--restart-seconds", "0.5"),
        *("--warehouse", str(storage / "warehouse"), "--json"),
    )
    assert ran.returncode == 0, ran.stderr
    (row,) = map(json.loads, ran.stdout.splitlines())
    assert row["makespan_s"] > 0, row
    (telemetry,) = (storage / "jobs").glob("*/job-0/telemetry.jsonl")
    epochs = [json.loads(line)["epoch"] for line in telemetry.read_text().splitlines()]
    assert epochs[-1] == 2
    assert far.client().containers.list(all=True) == []


@pytest.mark.parametrize(
    ("foreign", "problem"),
    [
        (("cert.pem", "key.pem"), "it refuses the certificate given: "),
        (("ca.pem",), "its certificate is refused here: "),
    ],
    ids=["client", "server"],
)
def test_certificates_of_another_authority_are_refused(
    far: Dockerd,
    storage: Path,
    authority: Authority,
    tmp_path: Path,
    foreign: tuple[str, ...],
    problem: str,
) -> None:
    tls, other = tmp_path / "mixed", Authority(tmp_path / "other").issue("client", "clientAuth")
    authority.issue(f"mixed-{len(foreign)}", "clientAuth").rename(tls)
    for name in foreign:
        (other / name).rename(tls / name)
    (storage / "jobs.trace").write_text(JOB)
    (storage / "rates.json").write_text(json.dumps(RATES))
    ran = shockwave(
        *(far, storage, tls, "cluster", "run", "--cluster", str(storage / "far.toml")),
        *("--trace", str(storage / "jobs.trace"), "--profile", str(storage / "rates.json")),
        *("--warehouse", str(storage / "warehouse")),
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    (line,) = ran.stderr.splitlines()
    assert line.startswith(f"error: node far: does not answer: {problem}")
    assert not (storage / "warehouse").exists()


def test_jobs_run_through_ssh(daemon: Dockerd, storage: Path, server: Sshd) -> None:
    named = {"far": server.endpoint}
    nodes = cluster(daemon, storage, nodes=named, gpus=2, image=COUNTING)
    assert [finding for finding in findings(nodes).values() if not finding.sound] == []
    with driven(nodes, "ssh", [job(0), long(1)]) as driver:
        driver.play({0: (0,), 1: (1,)})
        while 0 in driver.leases or not driver.epochs(1):
            assert 1 in driver.leases, driver.events
            driver.play(driver.leases)
        assert (driver.kinds(0), driver.epochs(0)) == (["started", "finished"], [0, 1, 2])
        # Docker reports it once a second, and jobs that count may have ended before.
        wait_for(
            lambda: (
                driver.play(driver.leases)
                and any(entry.cpu_seconds for entry in driver.progress[1])
            )
        )
        (preempted,) = driver.dispatch({})
        assert (preempted.job_id, preempted.reason) == (1, "a test says so")  # nothing of force
        assert (nodes.folder("ssh", 1) / CHECKPOINT).exists()
    assert daemon.containers("ssh") == []


def test_the_reason_of_an_ssh_failure_is_reported(
    daemon: Dockerd, storage: Path, server: Sshd, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reason(host: str = "127.0.0.1", user: str = "root") -> str:
        endpoint = f"ssh://{user}@{host}:{server.port}"
        finding = findings(cluster(daemon, storage, nodes={"far": endpoint}))["far", "endpoint"]
        assert not finding.sound
        return finding.found.removeprefix(f"{endpoint}: ")

    assert reason(host="localhost") == "Host key verification failed."
    assert reason(user="nobody").startswith("nobody@127.0.0.1: Permission denied (publickey")
    with daemon.stopped():
        assert str(daemon.folder) in reason()
    with monkeypatch.context() as patched:
        patched.setattr(containers_docker, "ANSWER_SECONDS", 5.0)
        assert reason(host="silent") == "no answer in 5 s"
    waiting = Path("/proc") / (server.folder / "waits").read_text().strip()
    wait_for(lambda: not waiting.exists())  # it is ended with the ssh that began it
    with server.stopped():
        refused = f"ssh: connect to host 127.0.0.1 port {server.port}: Connection refused"
        cut_off = "kex_exchange_identification: read: Connection reset by peer"
        assert reason() in (refused, cut_off)  # whether the last of it is gone or going
    with monkeypatch.context() as patched:
        patched.setenv("PATH", "/nowhere")
        assert reason() == "this machine has no ssh"


def test_no_burst_is_too_much_for_an_sshd(daemon: Dockerd, storage: Path, server: Sshd) -> None:
    (node,) = cluster(daemon, storage, nodes={"far": server.endpoint}).nodes
    burst = MOST_STARTS + 4
    with closing(containers_docker.Daemon(node)) as asked, ThreadPoolExecutor(burst) as pool:
        found = list(pool.map(asked.found, ["none"] * burst))
    assert found == [[]] * burst


def test_a_host_whose_sshd_dies_is_drained_and_comes_back(
    daemon: Dockerd, storage: Path, server: Sshd
) -> None:
    named = {"near": daemon.endpoint, "far": server.endpoint}
    nodes = cluster(daemon, storage, nodes=named, gpus=1, image=COUNTING)
    with driven(nodes, "cut", [long(0)]) as driver:
        driver.dispatch({0: (1,)})
        driver.until_trained(0)
        with server.stopped():
            assert driver.play(driver.leases).drained == (1,)
            assert driver.last(0).kind is EventKind.LOST
            # ssh says one of several things, whichever it notices first.
            how = "node far does not answer: .*([Cc]losed|reset|refused|Broken pipe)"
            assert re.match(how, driver.last(0).reason)
            driver.play({0: (0,)})
            assert driver.last(0).kind is EventKind.RESUMED
            assert len(daemon.containers("cut")) == 2  # as nobody can end the one on node far
        driver.play(driver.leases)
        driver.play(driver.leases)
        assert driver.seen[-1].drained == ()
        (left,) = daemon.containers("cut")
        assert left.labels["shockwave.node"] == "near"
        driver.play({0: (1,)})
        assert driver.last(0).kind is EventKind.RESUMED


def test_a_gang_spans_two_daemons_over_an_overlay_network(
    daemon: Dockerd, far: Dockerd, storage: Path
) -> None:
    named = {"one": daemon.endpoint, "two": far.endpoint}
    nodes = with_slots(cluster(daemon, storage, nodes=named, gpus=2, network="gangs"), 0.4)
    with swarm(daemon, far, "gangs"):
        assert [finding for finding in findings(nodes).values() if not finding.sound] == []
        with driven(nodes, "gang", [job(0, gpus=3, epochs=2)]) as driver:
            driver.dispatch({0: (1, 2, 3)})
            for host in (daemon, far):
                (container,) = host.containers("gang")
                assert container.attrs["NetworkSettings"]["Networks"].keys() == {"gangs"}
            driver.until_over()
            assert driver.epochs(0) == [0, 1], driver.events
            assert driver.kinds(0) == ["started", "finished"]
        assert daemon.containers("gang") + far.containers("gang") == []
