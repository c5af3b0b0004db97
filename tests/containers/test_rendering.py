"""Rendering of leases as containers, without Docker."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.docker.grants import JobNetwork
from containers.docker.nodes import ContainerLimits, Gpu, Mps, Node, Nodes
from containers.docker.own_images import check_needs
from containers.docker.rendering import LONGEST_NAME, container_name, network_name, render
from containers.runtime import Lease
from predictor.allocation import Demand
from predictor.errors import InputError
from predictor.job import JobKind, make_timed_job
from predictor.options import JobOptions, parse_tasks
from tests.strategies import examples

LIMITS = ContainerLimits(memory_bytes=2**30, pids=64, scratch_bytes=2**26, cpus=1.5)


def nodes(*endpoints: str, device: Callable[[int], Gpu] | None = None, gpus: int = 4) -> Nodes:
    """Nodes at these endpoints."""
    made = device or (lambda gpu: Gpu(cpus=0.5, cpuset=str(gpu)))
    slots = tuple(made(gpu) for gpu in range(gpus))
    named = [
        Node(f"n{i}", endpoint, "a100", f"image:{i}", slots)
        for i, endpoint in enumerate(endpoints or ("unix:///tmp/a/s",))
    ]
    return Nodes(tuple(named), Path("/srv/jobs"), "1000:1000", limits=LIMITS)


def bind(source: str, target: str, *, read_only: bool = True) -> dict[str, str | bool]:
    return {"Type": "bind", "Source": source, "Target": target, "ReadOnly": read_only}


def test_a_lease_on_one_node_is_one_container_without_a_network() -> None:
    (rendered,) = render(nodes(), "srtf-1", 7, Lease(3, (1, 2)))
    assert (rendered.node, rendered.network) == (0, "")
    assert rendered.name == "shockwave-srtf-1-job-3-round-7-node-0"
    assert rendered.options["network_mode"] == "none"
    assert rendered.options["image"] == "image:0"
    assert rendered.options["labels"] == {
        "shockwave.run": "srtf-1",
        "shockwave.job": "3",
        "shockwave.round": "7",
        "shockwave.node": "n0",
        "shockwave.rank": "0",
        "shockwave.gpus": "1,2",
    }
    assert rendered.options["environment"] == {
        "SHOCKWAVE_JOB_FOLDER": "/job",
        "SHOCKWAVE_LEASE": rendered.name,
        "LOCAL_WORKERS": "2",
        "NVIDIA_VISIBLE_DEVICES": "void",
    }
    assert rendered.options["mounts"] == [bind("/srv/jobs/srtf-1/job-3", "/job", read_only=False)]


def test_limits_are_by_gpu_and_nothing_is_privileged() -> None:
    (rendered,) = render(nodes(), "srtf-1", 0, Lease(0, (0, 1, 3)))
    options = rendered.options
    assert (options["cpu_quota"], options["cpu_period"]) == (150_000, 100_000)
    assert options["cpuset_cpus"] == "0,1,3"
    assert options["mem_limit"] == options["memswap_limit"] == 3 * 2**30
    assert options["pids_limit"] == 3 * 64
    assert f"size={3 * 2**26}" in options["tmpfs"]["/tmp"]
    assert (options["user"], options["cap_drop"]) == ("1000:1000", ["ALL"])
    assert options["security_opt"] == ["no-new-privileges:true"]
    assert options["read_only"]
    harmful = {"privileged", "cap_add", "devices", "pid_mode", "ipc_mode", "userns_mode"}
    assert harmful.isdisjoint(options)


def test_gpus_are_pinned_by_id_and_never_all() -> None:
    real = nodes(device=lambda gpu: Gpu(device=f"GPU-{gpu:04x}"))
    (rendered,) = render(real, "srtf-1", 0, Lease(0, (1, 3)))
    assert rendered.options["device_requests"] == [
        {"device_ids": ["GPU-0001", "GPU-0003"], "capabilities": [["gpu"]]}
    ]
    assert rendered.options["cpu_quota"] == 300_000
    assert "NVIDIA_VISIBLE_DEVICES" not in rendered.options["environment"]
    assert "device_requests" not in render(nodes(), "srtf-1", 0, Lease(0, (1,)))[0].options
    for device in (
        *("all", "0,1", "none", "GPU-1 --privileged", "../dev"),
        *("nvidia.com/gpu=all", "nvidia.com/gpu=", "nvidia.com/gpu=0,1", "gpu=0", "a/b=c=d"),
        *("/dev/fuse", "a/b=/dev/fuse", "nvidia.com/gpu=all\n"),
    ):
        with pytest.raises(InputError, match="is not the id of one GPU"):
            nodes(device=lambda gpu, device=device: Gpu(device=device))  # type: ignore[misc]


def test_gpus_by_the_names_of_the_device_interface_are_asked_of_its_driver() -> None:
    real = nodes(device=lambda gpu: Gpu(device=f"amd.com/gpu={gpu}"))
    (rendered,) = render(real, "srtf-1", 0, Lease(0, (1, 3)))
    assert rendered.options["device_requests"] == [
        {"device_ids": ["amd.com/gpu=1", "amd.com/gpu=3"], "driver": "cdi"}
    ]
    assert rendered.options["cpu_quota"] == 300_000
    assert rendered.options["environment"]["NVIDIA_VISIBLE_DEVICES"] == "void"
    names = ["nvidia.com/gpu=0", "nvidia.com/gpu=GPU-0a1b", "nvidia.com/gpu=0:1", "a.b/c-d=e_f.g"]
    nodes(device=lambda gpu: Gpu(device=names[gpu]))


def test_a_gpu_has_one_owner_and_a_node_one_form_of_names() -> None:
    with pytest.raises(InputError, match="node n0: gpus mixes ids and CDI names"):
        nodes(device=lambda gpu: Gpu(device=("0", "nvidia.com/gpu=1", "2", "3")[gpu]))
    plain = nodes(device=lambda gpu: Gpu(device=str(gpu)), gpus=1)
    (node,) = plain.nodes
    other = replace(node, name="n1", gpus=(Gpu(device="nvidia.com/gpu=0"),))
    with pytest.raises(InputError, match="GPU 0 of unix:///tmp/a/s is there twice"):
        replace(plain, nodes=(node, other))
    replace(plain, nodes=(node, replace(other, gpus=(Gpu(device="amd.com/gpu=0"),))))


def test_of_two_jobs_on_the_same_gpus_each_has_half_of_what_comes_with_them() -> None:
    (rendered,) = render(nodes(), "srtf-1", 0, Lease(0, (1, 2)), shared=True)
    assert (rendered.options["cpu_quota"], rendered.options["cpuset_cpus"]) == (50_000, "1,2")
    assert rendered.options["mem_limit"] == 2 * 2**30


def test_processes_share_a_gpu_by_the_service_of_its_host() -> None:
    real = nodes(device=lambda gpu: Gpu(device=f"GPU-{gpu:04x}"))
    mps = Mps(Path("/run/mps"), threads=60.0)
    served = replace(real, nodes=(replace(real.nodes[0], mps=mps),))
    (without,), (rendered,) = (
        render(some, "srtf-1", 0, Lease(0, (1, 3))) for some in (real, served)
    )
    assert without.options.keys() ^ rendered.options.keys() == {"ipc_mode", "shm_size"}
    assert rendered.options["ipc_mode"] == "host"
    assert rendered.options["mounts"] == [
        *without.options["mounts"],
        bind("/run/mps", "/run/mps", read_only=False),
    ]
    assert rendered.options["environment"] == without.options["environment"] | {
        "CUDA_MPS_PIPE_DIRECTORY": "/run/mps",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "60",
    }
    with pytest.raises(InputError, match="would show /srv/jobs to every job"):
        replace(served, nodes=(replace(real.nodes[0], mps=Mps(Path("/srv"))),))


def test_containers_share_memory_by_gpu() -> None:
    real = nodes("tcp://a:1", "tcp://b:1", device=lambda gpu: Gpu(device=f"GPU-{gpu:04x}"))
    for gpus in ((0, 1), (3, 4)):
        for rendered in render(real, "srtf-1", 0, Lease(0, gpus)):
            local = len(rendered.options["device_requests"][0]["device_ids"])
            assert rendered.options["shm_size"] == local * 2**30
            assert rendered.options["mem_limit"] == local * 2**30
            assert f"size={local * 2**26}" in rendered.options["tmpfs"]["/tmp"]
    small = replace(nodes(), limits=replace(LIMITS, shared_bytes=2**27))
    assert render(small, "srtf-1", 0, Lease(0, (0, 1)))[0].options["shm_size"] == 2**28


def test_a_gang_on_the_hosts_network_meets_at_an_address_and_a_port_of_its_own() -> None:
    plain = nodes("tcp://a:1", "tcp://b:1")
    first, second = (
        replace(node, address=f"10.0.0.{place}") for place, node in enumerate(plain.nodes)
    )
    grants = (JobNetwork("fabric", docker="host", rdma=True), JobNetwork("lan", docker="overlay"))
    both = replace(plain, nodes=(first, second), networks=grants)
    spec = make_timed_job(7, JobKind.OPAQUE, Demand.gang(2), 60.0, 0.0, image="own:1")
    named = replace(spec, options=JobOptions(network="fabric"))
    leases = [Lease(7, (3, 4)), Lease(7, (2, 5))]
    gangs = [render(both, "srtf-1", 0, lease, named, "sha256:1") for lease in leases]
    ports = {part.options["environment"]["MASTER_PORT"] for gang in gangs for part in gang}
    assert ports == {"29503", "29502"}
    for part in gangs[0]:
        assert part.options["environment"]["MASTER_ADDR"] == "10.0.0.0"
        assert (part.network, part.options["network_mode"]) == ("", "host")
        assert part.options["devices"] == ["/dev/infiniband:/dev/infiniband:rw"]
        assert part.options["cap_add"] == ["IPC_LOCK"]
        assert part.options["ulimits"] == [{"Name": "memlock", "Soft": -1, "Hard": -1}]
    lan = render(both, "srtf-1", 0, leases[0], replace(spec, options=JobOptions(network="lan")))
    for part in lan:
        assert (part.network, part.options["network_mode"]) == ("", "overlay")
        assert part.options["environment"]["MASTER_ADDR"] == lan[0].name
        assert {"devices", "cap_add", "ulimits"}.isdisjoint(part.options)


def test_a_gang_over_two_names_of_one_daemon_has_a_network_of_its_own() -> None:
    first, second = render(nodes("unix:///a", "unix:///a"), "srtf-1", 2, Lease(5, (3, 4, 5)))
    assert (first.node, second.node) == (0, 1)
    assert first.network == second.network == "shockwave-srtf-1-job-5"
    assert {rendered.options["network_mode"] for rendered in (first, second)} == {first.network}
    assert [rendered.options["environment"]["NODE_RANK"] for rendered in (first, second)] == [
        "0",
        "1",
    ]
    assert [rendered.options["environment"]["LOCAL_WORKERS"] for rendered in (first, second)] == [
        "1",
        "2",
    ]
    assert second.options["environment"]["MASTER_ADDR"] == first.name
    assert second.options["environment"]["SHOCKWAVE_LEASE"] == first.name
    assert second.options["environment"]["NNODES"] == "2"


def test_a_gang_over_daemons_uses_the_network_of_the_cluster_or_none() -> None:
    apart = nodes("tcp://a:2376", "tcp://b:2376")
    shared = replace(apart, network="jobs")
    for cluster, mode in ((apart, "none"), (shared, "jobs")):
        for rendered in render(cluster, "srtf-1", 2, Lease(5, (3, 4))):
            assert (rendered.network, rendered.options["network_mode"]) == ("", mode)
        (alone,) = render(cluster, "srtf-1", 2, Lease(5, (0, 3)))
        assert alone.options["network_mode"] == "none"


@pytest.mark.slow
@given(
    st.from_regex(r"[a-z][a-z0-9_-]{0,90}", fullmatch=True),
    st.integers(0, 10**6),
    st.integers(0, 10**6),
    st.integers(0, 1000),
)
def test_names_are_host_names_and_tell_leases_apart(
    run: str, job: int, number: int, rank: int
) -> None:
    name = container_name(run, job, number, rank)
    assert len(name) <= LONGEST_NAME
    assert name == container_name(run, job, number, rank)
    others = {
        container_name(run + "x", job, number, rank),
        container_name(run, job + 1, number, rank),
        container_name(run, job, number + 1, rank),
        container_name(run, job, number, rank + 1),
    }
    assert len(others | {name}) == 5
    assert len(network_name(run, job)) <= LONGEST_NAME


@pytest.mark.parametrize(
    "run", ["", "..", "../other", "a/b", "/etc", "-rf", "a b", "a:/etc:rw", "a\n", "é", "x" * 101]
)
def test_a_run_is_never_a_way_out_of_the_storage(run: str) -> None:
    with pytest.raises(InputError, match="cannot be part of a path"):
        render(nodes(), run, 0, Lease(0, (0,)))


@pytest.mark.parametrize("user", ["root", "0:0", "0", "1000", "", "1000:1000:0", "nobody:nogroup"])
def test_nothing_runs_as_root(user: str) -> None:
    with pytest.raises(InputError, match="may be root"):
        replace(nodes(), user=user)


@pytest.mark.parametrize("path", ["relative", "/srv/../etc", "/srv:/etc:rw"])
def test_paths_are_plain(path: str) -> None:
    for field in ({"storage": Path(path)}, {"datasets": Path(path)}, {"mounts": (Path(path),)}):
        with pytest.raises(InputError, match="is not a plain absolute path"):
            replace(nodes(), **field)


@pytest.mark.parametrize(
    "path", ["/", "/tmp", "/tmp/a", "/tmp/a/s", "/srv", "/srv/jobs", "/var/run", "/run"]
)
def test_no_mount_shows_a_docker_socket_or_the_folders_of_other_jobs(path: str) -> None:
    for field in ({"datasets": Path(path)}, {"mounts": (Path("/usr"), Path(path))}):
        with pytest.raises(InputError, match=r"would show .* to every job"):
            replace(nodes(), **field)
    fine = replace(nodes(), datasets=Path("/srv/data"), mounts=(Path("/usr"),))
    (rendered,) = render(fine, "srtf-1", 0, Lease(0, (0,)))
    assert rendered.options["mounts"][1:] == [bind("/srv/data", "/data"), bind("/usr", "/usr")]


@examples(50)
@given(st.integers(1, 8), st.integers(1, 5), st.data())
def test_gpus_by_node_are_as_the_nodes_number_them(
    size: int, count: int, data: st.DataObject
) -> None:
    cluster = nodes(*["unix:///a"] * count, gpus=size)
    assert cluster.gpus == size * count
    gpus = sorted(data.draw(st.sets(st.integers(0, cluster.gpus - 1), min_size=1)))
    found = cluster.by_node(gpus)
    assert [node * size + local for node, mine in found.items() for local in mine] == gpus
    assert all(0 <= local < size for mine in found.values() for local in mine)


def test_a_task_gets_its_index_and_a_secret_is_a_file_of_its_tenant() -> None:
    safe = replace(nodes(), secrets=Path("/etc/keys"))
    spec = make_timed_job(
        *(3, JobKind.OPAQUE, Demand.gang(1), 60.0, 0.0),
        image="a",
        tenant="b",
        options=JobOptions(secrets=("wandb",), task=parse_tasks("7-9")[1]),
    )
    (rendered,) = render(safe, "srtf-1", 0, Lease(3, (1,)), spec)
    assert rendered.options["environment"]["SHOCKWAVE_ARRAY_INDEX"] == "8"
    assert rendered.options["mounts"][1:] == [bind("/etc/keys/b/wandb", "/run/secrets/wandb")]
    check_needs(replace(safe, images=("a",)), [spec])
    with pytest.raises(InputError, match="secrets: the cluster has none"):
        check_needs(replace(nodes(), images=("a",)), [spec])
    with pytest.raises(InputError, match="job 3, image: is missing"):
        check_needs(safe, [replace(spec, image="")])
    with pytest.raises(InputError, match="would show /etc/keys to every job"):
        replace(safe, mounts=(Path("/etc"),))
