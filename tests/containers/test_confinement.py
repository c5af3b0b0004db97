"""Confinement of a job's container, as Docker reports it and tried from inside."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from containers.docker.nodes import ContainerLimits, Gpu, Node, Nodes
from containers.docker.rendering import render
from containers.runtime import EventKind, Lease
from harness.dockerd import COUNTING, IMAGE, OUTSIDE, STUBBORN, Dockerd, cluster, mounts, python
from tests.containers.driver import driven, long

RUN = "confined"
MIB = 2**20
LIMITS = ContainerLimits(memory_bytes=512 * MIB, pids=48, scratch_bytes=8 * MIB)

LOOK = """
import json, os, signal, socket
def tried(work):
    try:
        work()
    except OSError as error:
        return error.strerror or str(error)
    return "it worked"
def fill():
    with open("/tmp/big", "wb") as file:
        for _ in range(64): file.write(bytes(1 << 20)); file.flush()
def many():
    made = []
    try:
        for _ in range(64):  # more than the limit
            child = os.fork()
            if not child:
                signal.pause()
            made.append(child)
    finally:
        for child in made: os.kill(child, 9); os.waitpid(child, 0)
status = dict(line.split(":", 1) for line in open("/proc/self/status") if ":" in line)
groups = dict(line.strip().split(":", 2)[1:] for line in open("/proc/self/cgroup"))
def bridge():  # where the host is on a usual network
    own = socket.gethostbyname(socket.gethostname())
    return socket.create_connection((own.rpartition(".")[0] + ".1", 80), 0.5)
sockets = [os.path.join(folder, name) for folder, _, names in os.walk("/run") for name in names]
print(json.dumps({
    "status": {key: value.split() for key, value in status.items()},
    "mounts": [line.split() for line in open("/proc/self/mounts")],
    "interfaces": sorted(name for _, name in socket.if_nameindex()),
    "routes": open("/proc/net/route").read().splitlines()[1:],
    "root": tried(lambda: open("/made", "w")),
    "system": tried(lambda: open("/usr/made", "w")),
    "trainer": tried(lambda: open("/opt/trainer/__main__.py", "a")),
    "job": tried(lambda: open("/job/made", "w")),
    "scratch": tried(lambda: open("/tmp/made", "w")),
    "full": tried(fill),
    "many": tried(many),
    "device": tried(lambda: os.mknod("/tmp/device", 0o20666, os.makedev(1, 1))),
    "host": tried(lambda: socket.sethostname("other")),
    "owner": tried(lambda: os.chown("/tmp/made", 0, 0)),
    "user": tried(lambda: os.setuid(0)),
    "out": tried(lambda: socket.create_connection(("OUTSIDE", 80), 0.5)),
    "bridge": tried(bridge),
    "sockets": [path for path in sockets + ["/var/run/docker.sock", "/run/docker.sock"]
                if os.path.exists(path) and path.endswith(".sock")],
    "environment": dict(os.environ),
    "jobs": sorted(os.listdir("/job")),
}))
"""


def look(container: Any) -> dict[str, Any]:
    """The container as its user sees it."""
    code, output = container.exec_run(
        [python(), "-c", LOOK.replace("OUTSIDE", OUTSIDE)], demux=True
    )
    out, err = output
    assert code == 0, (err, container.logs())
    found: dict[str, Any] = json.loads(out)
    return found


@pytest.fixture(scope="module")
def confined(
    daemon: Dockerd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, tuple[dict[str, Any], dict[str, Any]]]]:
    """What Docker says of running containers, and what is found inside, by name of the node.

    A job of one GPU, and a gang on two nodes of one machine.
    """
    storage = daemon.folder / "confined"
    storage.mkdir()
    endpoints = dict.fromkeys(("one", "two"), daemon.endpoint)
    nodes = cluster(daemon, storage, nodes=endpoints, gpus=2, limits=LIMITS, image=COUNTING)
    proxies = {"proxies": {"default": {"httpProxy": "http://me:secret@proxy:3128"}}}
    (storage / "config.json").write_text(json.dumps(proxies))
    with (
        pytest.MonkeyPatch.context() as patched,
        driven(nodes, RUN, [long(0), long(1, gpus=2)]) as driver,
    ):
        patched.setenv("DOCKER_CONFIG", str(storage))  # the scheduler's own
        driver.dispatch({0: (0,), 1: (1, 2)})
        found = daemon.containers(RUN)
        names = [
            f"job {container.labels['shockwave.job']}, {container.labels['shockwave.node']}"
            for container in found
        ]
        with ThreadPoolExecutor() as pool:
            seen = list(pool.map(look, found))
        yield {
            name: (container.attrs, inside)
            for name, container, inside in zip(names, found, seen, strict=True)
        }


Confined = dict[str, tuple[dict[str, Any], dict[str, Any]]]


def test_a_job_is_no_root_and_cannot_become_it(confined: Confined) -> None:
    assert confined.keys() == {"job 0, one", "job 1, one", "job 1, two"}
    for asked, inside in confined.values():
        assert asked["Config"]["User"] == "1000:1000"
        assert inside["status"]["Uid"] == ["1000"] * 4
        assert inside["status"]["Gid"] == ["1000"] * 4
        assert set(inside["status"]["Groups"]) <= {"1000"}
        assert inside["status"]["NoNewPrivs"] == ["1"]
        assert asked["HostConfig"]["SecurityOpt"] == ["no-new-privileges:true"]
        assert inside["user"] == inside["owner"] == "Operation not permitted"


def test_a_job_has_no_capability(confined: Confined) -> None:
    for asked, inside in confined.values():
        assert asked["HostConfig"]["CapDrop"] == ["ALL"]
        assert not asked["HostConfig"]["CapAdd"]
        assert not asked["HostConfig"]["Privileged"]
        for kind in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"):
            assert int(inside["status"][kind][0], 16) == 0, kind
        assert inside["device"] == inside["host"] == "Operation not permitted"
        assert inside["status"]["Seccomp"] == ["2"]


def test_a_job_writes_to_its_folder_and_its_scratch_only(confined: Confined) -> None:
    for asked, inside in confined.values():
        assert asked["HostConfig"]["ReadonlyRootfs"]
        assert inside["root"] == inside["system"] == "Read-only file system"
        assert inside["trainer"] in ("Read-only file system", "Permission denied")
        assert inside["job"] == inside["scratch"] == "it worked"
        assert inside["full"] == "No space left on device"
        flags = {mount[1]: mount[3].split(",") for mount in inside["mounts"]}
        assert "ro" in flags["/"]
        assert "rw" in flags["/job"]
        assert {"rw", "nosuid", "nodev"} <= set(flags["/tmp"])
        written = [
            path
            for path, options in flags.items()
            if "rw" in options and not path.startswith(("/proc", "/dev", "/sys"))
        ]
        assert sorted(set(written) - {"/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}) == [
            "/job",
            "/tmp",
        ]
        assert "job.json" in inside["jobs"]
        # Docker's own files in /etc belong to root, whom the job is not.


def test_a_job_has_no_network_and_a_gang_one_without_a_way_out(confined: Confined) -> None:
    for name, (asked, inside) in confined.items():
        assert inside["out"] in ("Network is unreachable", "timed out")
        assert not asked["HostConfig"]["PortBindings"]
        if name == "job 0, one":
            assert asked["HostConfig"]["NetworkMode"] == "none"
            assert inside["interfaces"] == ["lo"]
            assert inside["routes"] == []
        else:
            assert asked["HostConfig"]["NetworkMode"] == f"shockwave-{RUN}-job-1"
            assert inside["interfaces"] == ["eth0", "lo"]
            # Where the host would be on a usual network.
            assert inside["bridge"] in ("No route to host", "timed out")


def test_on_a_usual_network_there_would_be_a_way_out(daemon: Dockerd) -> None:
    container = daemon.client().containers.run(
        STUBBORN, detach=True, volumes=[f"{path}:{path}:ro" for path in mounts()]
    )
    try:
        inside = look(container)
        assert inside["out"] == inside["bridge"] == "Connection refused"  # by who is there
    finally:
        container.remove(force=True)


def test_memory_processors_and_processes_are_limited(confined: Confined) -> None:
    for asked, inside in confined.values():
        limits = asked["HostConfig"]
        assert limits["Memory"] == limits["MemorySwap"] == 512 * MIB
        assert limits["PidsLimit"] == 48
        assert limits["CpuQuota"] == limits["CpuPeriod"] == 100_000  # one processor
        assert inside["many"] == "Resource temporarily unavailable"


def test_a_job_sees_no_docker_socket_and_no_secret(confined: Confined) -> None:
    for asked, inside in confined.values():
        assert inside["sockets"] == []
        sources = {mount["Source"]: mount["RW"] for mount in asked["Mounts"]}
        (own,) = [source for source, writes in sources.items() if writes]
        assert own.endswith(f"/{RUN}/job-{asked['Config']['Labels']['shockwave.job']}")
        assert sources.keys() - {own} == {str(path) for path in mounts()}
        assert set(asked["Config"]["Labels"]) == {
            f"shockwave.{name}" for name in ("run", "job", "round", "node", "rank", "gpus")
        }
        assert set(inside["environment"]) <= {
            *("PATH", "HOME", "HOSTNAME", "PYTHONPATH", "LC_CTYPE"),
            *("SHOCKWAVE_LEASE", "SHOCKWAVE_JOB_FOLDER", "SHOCKWAVE_DATA_FOLDER"),
            "NVIDIA_VISIBLE_DEVICES",
            *("MASTER_ADDR", "MASTER_PORT", "NNODES", "NODE_RANK", "LOCAL_WORKERS"),
        }
        assert inside["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"  # slots are no GPUs
        assert not asked["HostConfig"]["Devices"]
        assert asked["HostConfig"]["PidMode"] == ""
        assert asked["HostConfig"]["IpcMode"] in ("private", "")


def test_only_the_image_of_the_node_is_run(daemon: Dockerd, confined: Confined) -> None:
    own = daemon.client().images.get(COUNTING).id
    for asked, _ in confined.values():
        assert asked["Config"]["Image"] == COUNTING
        assert asked["Image"] == own
        assert asked["Config"]["Cmd"] == ["/job"]
        assert asked["Config"]["Entrypoint"] == [python(), "/opt/counting.py"]


@pytest.mark.parametrize("kind", ["", "nvidia.com/gpu="])
def test_gpus_that_the_machine_lacks_are_refused_and_nothing_is_left(
    daemon: Dockerd, storage: Path, kind: str
) -> None:
    gpus = (Gpu(device=f"{kind}GPU-0a1b"), Gpu(device=f"{kind}GPU-2c3d"))
    node = Node("real", daemon.endpoint, "a100", IMAGE, gpus)
    nodes = Nodes((node,), storage, "1000:1000", mounts=mounts())
    (rendered,) = render(nodes, "pinned", 0, Lease(0, (1,)))
    assert rendered.options["device_requests"][0]["device_ids"] == [f"{kind}GPU-2c3d"]
    with driven(nodes, "pinned", [long(0)]) as driver:
        driver.play({0: (1,)})
        assert driver.last(0).kind is EventKind.LOST
        assert driver.last(0).reason.startswith(
            (
                "could not be started: could not select device driver",
                "could not be started: CDI device injection failed",  # Docker 25 and later
            )
        )
        assert daemon.containers("pinned") == []
