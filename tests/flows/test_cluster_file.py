"""Cluster files: their fields, and errors that name file and field."""

import re
from pathlib import Path

import pytest

from containers.docker.grants import JobNetwork, Volume
from containers.docker.nodes import ContainerLimits, Gpu, Mps, Node, Nodes
from flows.runs.cluster_file import read_cluster_file
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Pool
from tests.flows.conftest import Command, assert_refused

PAGE = Path(__file__).parents[2] / "docs" / "docker.md"

TOP = {"storage": '"/mnt/jobs"', "user": '"1000:1000"'}
NODE = {
    "name": '"one"',
    "endpoint": '"unix:///var/run/docker.sock"',
    "gpu_type": '"a100"',
    "image": '"trainer:1"',
    "gpus": "[0, 1]",
}


def text(top: dict[str, str], *nodes: dict[str, str], limits: str = "") -> str:
    """A cluster file; fields whose value is empty are left out."""

    def fields(given: dict[str, str]) -> str:
        return "".join(f"{name} = {value}\n" for name, value in given.items() if value)

    parts = [fields(top), f"[limits]\n{limits}\n" if limits else ""]
    return "".join([*parts, *(f"[[nodes]]\n{fields(node)}" for node in nodes)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cluster.toml"


def test_the_example_of_the_docs(path: Path) -> None:
    example = re.search(r"```toml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example is not None
    path.write_text(example[1])
    nodes = read_cluster_file(path)
    assert [node.name for node in nodes.nodes] == ["node-1", "node-2", "node-3"]
    assert nodes.inventory.pools == (Pool("v100", 8, 4, 2.48), Pool("k80", 2, 2))
    assert nodes.nodes[1].endpoint == "ssh://scheduler@node-2"
    assert nodes.limits == ContainerLimits(32 * 2**30, 1024, 4 * 2**30, 8.0, 200 * 2**30)
    assert [nodes.limits_on(node).memory_bytes >> 30 for node in nodes.nodes] == [32, 32, 16]
    assert [node.mps for node in nodes.nodes] == [None, None, Mps(Path("/run/nvidia-mps"))]


def test_alike_nodes_that_follow_each_other_are_a_pool(path: Path) -> None:
    kinds = [("a100", 2), ("a100", 2), ("a100", 1), ("k80", 1), ("a100", 1)]
    path.write_text(
        text(
            TOP,
            *(
                NODE
                | {
                    "name": f'"n{n}"',
                    "gpu_type": f'"{kind}"',
                    "gpus": str([*range(4 * n, 4 * n + gpus)]),
                }
                for n, (kind, gpus) in enumerate(kinds)
            ),
        )
    )
    nodes = read_cluster_file(path)
    assert nodes.inventory.pools == (
        *(Pool("a100", 4, 2), Pool("a100", 1, 1), Pool("k80", 1, 1), Pool("a100", 1, 1)),
    )
    assert nodes.by_node((2, 3)) == {1: (0, 1)}
    assert nodes.by_node((5,)) == {3: (0,)}


def test_tenants_are_promised_cells_that_can_be_kept(here: Command, path: Path) -> None:
    node = NODE | {"gpus": "[0, 1, 2, 3]"}
    levels = "[levels]\na100 = { pair = 2, node = 2 }\n"
    tenant = '[[tenants]]\nname = "{}"\ncells = {{ a100 = {{ {} }} }}\n'
    whole = text(TOP, node) + levels + tenant.format("vision", "pair = 1, gpu = 1")
    path.write_text(whole)
    nodes = read_cluster_file(path)
    assert nodes.levels == (TypeLevel("a100", "pair", 2), TypeLevel("a100", "node", 2))
    assert nodes.cells == (
        *(TenantCells("vision", "a100", "pair", 1), TenantCells("vision", "a100", "gpu", 1)),
    )
    for more, said in (
        ("node = 1", "1 cells 'pair' are promised and 0 are there for it"),
        ("rack = 1", "there is no level 'rack'"),
    ):
        path.write_text(whole + tenant.format("speech", more))
        assert_refused(here("cluster", "check", path), said)


def test_every_field_says_what_it_says(path: Path, tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    top = {
        **TOP,
        "datasets": '"/mnt/data"',
        "mounts": '["/opt/cuda", "/srv/models"]',
        "grace_seconds": "45",
        "hung_rounds": "5",
        "network": '"jobs"',
        "rendezvous_port": "12345",
    }
    real = {**NODE, "gpus": '[3, "GPU-0a1b-2c"]'}
    slots = "[{ cpus = 1.5 }, { cpus = 2, cpuset = '0-1,3' }]"
    tls = {"endpoint": '"tcp://two:2376"', "tls": f"'{tmp_path}'"}
    emulated = {**NODE, "name": '"two"', "gpus": "", "slots": slots, **tls}
    limits = 'memory = "3g"\nscratch = "512m"\npids = 99\ncpus = 2.5\nfolder = "7g"\nshm = "2g"'
    path.write_text(text(top, real, emulated, limits=limits))
    assert read_cluster_file(path) == Nodes(
        nodes=(
            Node(
                *("one", "unix:///var/run/docker.sock", "a100", "trainer:1"),
                (Gpu(device="3"), Gpu(device="GPU-0a1b-2c")),
                address="127.0.0.1",
            ),
            Node(
                *("two", "tcp://two:2376", "a100", "trainer:1"),
                (Gpu(cpus=1.5), Gpu(cpus=2.0, cpuset="0-1,3")),
                tmp_path,
                address="two",
            ),
        ),
        storage=Path("/mnt/jobs"),
        user="1000:1000",
        datasets=Path("/mnt/data"),
        mounts=(Path("/opt/cuda"), Path("/srv/models")),
        limits=ContainerLimits(3 * 2**30, 99, 2**29, 2.5, 7 * 2**30, 2 * 2**30),
        grace_seconds=45.0,
        hung_rounds=5,
        network="jobs",
        rendezvous_port=12345,
    )


def test_networks_and_volumes_of_jobs(here: Command, path: Path) -> None:
    grants = """
[networks.internet]
docker = "egress"
proxy = "http://10.0.0.5:3128"
tenants = ["team-*"]
[networks.fabric]
docker = "host"
rdma = true
[volumes.results]
path = "/mnt/results"
writable = true
tenants = ["team-a"]
[volumes.shared]
path = "/mnt/shared"
"""
    path.write_text(text({**TOP, "pull": "true"}, NODE) + grants)
    nodes = read_cluster_file(path)
    assert nodes.pull
    assert nodes.networks == (
        JobNetwork("internet", ("team-*",), "egress", "http://10.0.0.5:3128"),
        JobNetwork("fabric", ("*",), "host", "", rdma=True),
    )
    assert nodes.volumes == (
        Volume("results", ("team-a",), Path("/mnt/results"), writable=True),
        Volume("shared", ("*",), Path("/mnt/shared")),
    )
    for field, wrong, said in (
        ('docker = "egress"', 'docker = "none"', "networks.internet.docker: 'none' is no network"),
        ('proxy = "http://10', 'proxy = "ftp://10', "networks.internet.proxy"),
        ('path = "/mnt/shared"', 'path = "shared"', "'shared' is not an absolute path"),
        ('path = "/mnt/shared"', 'path = "/mnt"', "would show /mnt/jobs to every job"),
        ("[volumes.shared]", '[volumes."a b"]', "volumes.a b"),
    ):
        path.write_text(text(TOP, NODE) + grants.replace(field, wrong))
        assert_refused(here("cluster", "check", path), said)


def test_gpus_by_the_names_of_the_device_interface(path: Path) -> None:
    names = ("nvidia.com/gpu=0", "nvidia.com/gpu=GPU-0a1b-2c", "amd.com/gpu=1")
    path.write_text(text(TOP, NODE | {"gpus": str([*names])}))
    assert read_cluster_file(path).nodes[0].gpus == tuple(Gpu(device=name) for name in names)


def test_what_is_left_out_has_the_defaults_of_the_docs(path: Path) -> None:
    path.write_text(text(TOP, NODE))
    nodes = read_cluster_file(path)
    assert nodes.limits == ContainerLimits(8 * 2**30, 512, 2**30, 0.0, 64 * 2**30, 2**30)
    assert (nodes.grace_seconds, nodes.hung_rounds, nodes.rendezvous_port) == (30.0, 3, 29500)
    assert (nodes.datasets, nodes.mounts, nodes.network) == (None, (), "")


@pytest.mark.parametrize(
    "endpoint",
    [
        "unix:///run/user/1000/docker.sock",
        "ssh://host",
        "ssh://scheduler@host:2222",
        "ssh://[fd00::1]:22",
    ],
)
def test_endpoints(path: Path, endpoint: str) -> None:
    path.write_text(text(TOP, {**NODE, "endpoint": f'"{endpoint}"'}))
    assert read_cluster_file(path).nodes[0].endpoint == endpoint


ENDPOINTS = [
    *("tcp://x:y", "tcp://x", "tcp://:2376", "tcp://x:0", "tcp://x:99999", "tcp://x:2376/path"),
    *("tcp://user@x:2376", "tcp://[x:2376", "ssh://", "ssh://user@", "ssh://host:port"),
    *("ssh://host/path", "ssh://user:secret@host", "unix://", "unix:///", "unix://relative/sock"),
    *("unix:/run/docker.sock", "npipe:////./pipe/docker", "http://x:2375", "host", ""),
    *("ssh://a b", "unix:///run/a?b", "ssh://u@-oProxyCommand=id", "ssh://u@`id`", "ssh://u@$(id)"),
]


REFUSED = {
    "storage": ("top", ['"relative"', '"/a/../b"', '"/a:/b"', r'"/a\u0000b"', "3", "MISSING"]),
    "user": ("top", ['"root"', '"0:0"', '"1000:0"', '"1000"', "1000"]),
    "datasets": ("top", ['"relative"', '"/a:b"', "[]"]),
    "mounts": ("top", ['["relative"]', '"/usr"', '["/a/../b"]']),
    "grace_seconds": ("top", ["0", "1e9", "nan", '"30"']),
    "hung_rounds": ("top", ["0", "1.5", "true"]),
    "network": ("top", ['"a b"', '"-x"', '"host"', '"bridge"']),
    "rendezvous_port": ("top", ["80", "65536", '"29500"']),
    "limits.memory": ("limits", ['"0"', '"9999999t"', '"8G"', '"1.5g"', '"-1g"', "8"]),
    "limits.scratch": ("limits", ['"lots"']),
    "limits.folder": ("limits", ['"0"', '"2000t"', "64"]),
    "limits.pids": ("limits", ["15", "1.5"]),
    "limits.cpus": ("limits", ["-1", "inf"]),
    "limits.gpus": ("limits", ["1"]),
    "nodes[0].name": ("node", ['"A"', '"-a"', '""', '"a b"', "MISSING"]),
    "nodes[0].gpu_type": ("node", ['"a 100"', '""', '"measured"', "MISSING"]),
    "nodes[0].image": ("node", ['"--privileged"', '"a b"', "MISSING"]),
    "nodes[0].gpus": ("node", ["3", '"all"']),
    "nodes[0].slots": ("node", ["2"]),
    "nodes[0].endpoint": ("node", [*(f'"{endpoint}"' for endpoint in ENDPOINTS), "MISSING"]),
    "nodes[0].tls": ("node", ['"/nowhere"']),
    "nodes[0].gpu": ("node", ["[0]"]),
    "gpus": ("top", ["[0]"]),
}
"""Values by field, each of which is refused; MISSING leaves the field out."""


@pytest.mark.parametrize(
    ("field", "value"), [(field, value) for field, (_, many) in REFUSED.items() for value in many]
)
def test_a_mistake_is_one_line_that_names_file_and_field(
    here: Command, path: Path, field: str, value: str
) -> None:
    part, name = REFUSED[field][0], field.rpartition(".")[2]
    given = {name: "" if value == "MISSING" else value}
    top, node = (TOP | (given if part == "top" else {})), (NODE | (given if part == "node" else {}))
    path.write_text(text(top, node, limits=f"{name} = {value}" if part == "limits" else ""))
    assert_refused(here("cluster", "check", path), f"error: {path}: {field}")


WHOLE = {
    "needs either GPUs or slots": ({"slots": "[{ cpus = 1 }]"}, {}),
    "'1' would be mistaken for a node's number": ({}, {"name": '"1"'}),
    "a GPU is listed twice": ({"gpus": '[0, "0"]'}, {}),
    "mps needs GPUs": ({"gpus": "", "slots": "[{ cpus = 1.0 }]", "mps": '{ folder = "/m" }'}, {}),
    "a GPU is not a device id": ({"gpus": '["all"]'}, {}),
    "like nvidia.com/gpu=0": ({"gpus": '["nvidia.com/gpu=all"]'}, {}),
    "node one: gpus mixes ids and CDI names": ({"gpus": '["nvidia.com/gpu=0", 1]'}, {}),
    "is root on that host": ({"endpoint": '"tcp://x:2376"'}, {}),
    "two nodes have the same name": ({}, {"name": '"one"'}),
    "folder cannot differ by node": ({}, {"name": '"two"', "limits": '{ folder = "1g" }'}),
}


@pytest.mark.parametrize("problem", WHOLE)
def test_a_node_and_the_nodes_must_agree(here: Command, path: Path, problem: str) -> None:
    first, second = WHOLE[problem]
    path.write_text(text(TOP, NODE | first, *([NODE | second] if second else [])))
    assert_refused(here("cluster", "check", path), f"error: {path}", problem)


def test_a_folder_that_shows_what_jobs_may_not_see(here: Command, path: Path) -> None:
    path.write_text(text(TOP | {"datasets": '"/mnt"'}, NODE))
    said = f"error: {path}: /mnt: would show /mnt/jobs to every job"
    assert_refused(here("cluster", "check", path), said)


@pytest.mark.parametrize("lacking", ["ca.pem", "cert.pem", "key.pem"])
def test_a_certificate_that_is_missing_is_named(
    here: Command, path: Path, tmp_path: Path, lacking: str
) -> None:
    for name in {"ca.pem", "cert.pem", "key.pem"} - {lacking}:
        (tmp_path / name).touch()
    node = NODE | {"endpoint": '"tcp://x:2376"', "tls": f"'{tmp_path}'"}
    path.write_text(text(TOP, node))
    assert_refused(here("cluster", "check", path), f"nodes[0].tls: file {lacking} is missing in")


@pytest.mark.parametrize("content", ["storage = ", "\xff", "nodes = []", "", "nodes = 3"])
def test_a_file_that_is_no_cluster(here: Command, path: Path, content: str) -> None:
    path.write_bytes(content.encode("latin-1"))
    assert_refused(here("cluster", "check", path), f"error: {path}")


def test_a_file_that_is_not_there(here: Command, path: Path) -> None:
    assert_refused(here("cluster", "check", path), f"error: {path}: No such file")
