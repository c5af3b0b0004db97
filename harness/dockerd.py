"""A private Docker daemon in its own namespaces, and clusters on it.

Its processes, mounts and bridges are in namespaces that end with their first process, even after
failures. The image holds the trainer only; its dependencies are mounted from this machine, as no
image can be pulled here.
"""

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import docker

from containers.docker.nodes import ContainerLimits, Gpu, Node, Nodes

NEEDED = ("dockerd", "iptables", "unshare", "nsenter", "setpriv", "ip")
START_SECONDS = 300.0
"""Timeout, far above the time on a busy machine."""
TRAINER = Path(__file__).parents[1] / "containers" / "images" / "trainer"
COUNTER = Path(__file__).with_name("counting.py")
EXAMPLES = Path(__file__).parents[1] / "examples" / "jobs"
IMAGE = "shockwave-test:trainer"
COUNTING = "shockwave-test:counting"
"""Its jobs only count steps, without PyTorch."""
STUBBORN = "shockwave-test:stubborn"
"""Its jobs ignore SIGTERM."""
LYING = "shockwave-test:lying"
"""Its jobs end at once with code 0."""
LOUD = "shockwave-test:loud"
"""Its jobs end with code 1 and a message."""
PLAIN = "shockwave-test:plain"
"""It runs any command, as users' images do; the example's jobs are in it."""
FOLDERS = ("usr", "lib", "lib64", "bin", "tmp", "job", "data", "proc", "sys", "dev", "etc")
LIMITS = ContainerLimits(memory_bytes=2**30, pids=64, scratch_bytes=2**26)
SMALL_BYTES = 64 * 1024
"""What fits into the small storage: less than a checkpoint."""

OUTSIDE = "192.0.2.1"
"""A machine that the daemon reaches, where nothing listens."""

FIRST = f"""
set -e
mount -t tmpfs tmpfs /run
ip link set lo up
ip netns add outside
ip link add out0 type veth peer name out1 netns outside
ip addr add 192.0.2.254/24 dev out0
ip -n outside addr add {OUTSIDE}/24 dev out1
ip link set out0 up
ip -n outside link set out1 up
touch FOLDER/up
exec sleep infinity
"""


def missing() -> str:
    """The requirements of a daemon that this machine lacks, in words; empty if none."""
    if os.geteuid():
        return "only root can start a Docker daemon"
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return f"no {', '.join(lacking)} on this machine" if lacking else ""


def packages() -> Path:
    """The folder of installed packages."""
    torch = find_spec("torch")  # without the seconds of its import
    assert torch is not None
    assert torch.origin is not None
    return Path(torch.origin).parents[1]


def python() -> str:
    """Python outside the virtual environment, of which containers see the packages only."""
    return os.path.realpath(sys.executable)


@dataclass
class Dockerd:
    """A daemon that can be stopped and started again.

    Attributes:
        folder: All its files.
        first: Process that makes its namespaces; its child is the first process in them.
        inside: Id of that child.
        options: Further options of the daemon.
        process: The daemon, while it runs.
    """

    folder: Path
    first: subprocess.Popen[bytes]
    inside: int
    options: tuple[str, ...] = ()
    process: subprocess.Popen[bytes] | None = None
    clients: list[Any] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"unix://{self.folder}/s"

    @property
    def small(self) -> Path:
        """A small storage, which is soon full."""
        return self.folder / "small"

    def client(self) -> Any:
        if not self.clients:
            self.clients.append(
                docker.DockerClient(base_url=self.endpoint, version="1.41", timeout=START_SECONDS)
            )
        return self.clients[0]

    def within(self, *command: str) -> list[str]:
        """A command, to be run in the daemon's namespaces."""
        return ["nsenter", "-t", str(self.inside), "-n", "-m", "-p", *command]

    def start(self) -> None:
        """Start the daemon, and wait until it answers."""
        command = self.within(
            "dockerd",
            f"--data-root={self.folder}/data",
            f"--exec-root={self.folder}/exec",
            f"--host={self.endpoint}",
            f"--pidfile={self.folder}/pid",
            *self.options,
        )
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(docker.errors.DockerException, OSError):
                self.client().ping()
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text().splitlines()[-1])
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop the daemon, and with it its containers."""
        assert self.process is not None
        number = (self.folder / "pid").read_text()
        subprocess.run(self.within("kill", "-TERM", number), check=True)
        deadline = time.monotonic() + START_SECONDS
        while self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)  # nsenter may have stopped with its child
            if time.monotonic() > deadline:
                raise RuntimeError(f"the daemon in {self.folder} does not stop")
            time.sleep(0.02)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Keep it from answering for a while."""
        assert self.process is not None
        number = (self.folder / "pid").read_text()
        subprocess.run(self.within("kill", "-STOP", number), check=True)
        status = self.within("grep", "State", f"/proc/{number}/status")
        while b"T (stopped)" not in subprocess.run(status, check=True, capture_output=True).stdout:
            time.sleep(0.02)  # its threads stop once one of them has handled the signal
        try:
            yield
        finally:
            subprocess.run(self.within("kill", "-CONT", number), check=True)

    def containers(self, run: str) -> list[Any]:
        """All containers of a run, running or not."""
        containers: list[Any] = self.client().containers.list(
            all=True, filters={"label": f"shockwave.run={run}"}
        )
        return containers

    def remove_containers(self) -> None:
        for container in self.client().containers.list(all=True):
            container.remove(force=True)

    def build(self) -> None:
        """Make the images."""
        command = [python(), "-m", "trainer"]
        self.add_image(IMAGE, command)
        self.add_image(COUNTING, [python(), "/opt/counting.py"])
        deaf = "import signal, time; signal.signal(15, signal.SIG_IGN)"
        deaf += "; print('deaf', flush=True); time.sleep(600)"
        self.add_image(STUBBORN, [python(), "-c", deaf])
        self.add_image(LYING, [python(), "-c", "pass"])
        self.add_image(PLAIN, [])
        self.add_image(LOUD, [python(), "-c", "raise SystemExit('no such data set')"])

    def add_image(self, name: str, entrypoint: list[str], *changes: str) -> None:
        """Make an image with the trainer in it that runs something.

        Args:
            name: Its name.
            entrypoint: Its command.
            changes: Further lines of its Dockerfile.
        """
        layer = io.BytesIO()
        with tarfile.open(fileobj=layer, mode="w") as tar:
            for folder in FOLDERS:
                entry = tarfile.TarInfo(folder)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
                tar.addfile(entry)
            tar.add(TRAINER, arcname="opt/trainer")
            tar.add(EXAMPLES, arcname="opt/jobs")
            tar.add(COUNTER, arcname="opt/counting.py")
        quoted = json.dumps(entrypoint)
        repository, tag = name.split(":")
        self.client().api.import_image_from_data(
            layer.getvalue(),
            repository=repository,
            tag=tag,
            changes=[f"ENV PYTHONPATH=/opt:{packages()}", f"ENTRYPOINT {quoted}", *changes],
        )


@contextmanager
def dockerd(*options: str) -> Iterator[Dockerd]:
    """A daemon with the images, under a path short enough for its socket.

    Args:
        options: Further options of `dockerd`.

    Raises:
        RuntimeError: It cannot be started; the text says why.
    """
    folder = Path(tempfile.mkdtemp(prefix="sw-", dir="/tmp"))
    (folder / "small").mkdir()
    folder.chmod(0o755)
    size = f"size={SMALL_BYTES},mode=755"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder / "small")]
    mounted = subprocess.run(mount, capture_output=True, text=True)
    if mounted.returncode:
        raise RuntimeError(mounted.stderr.strip())
    namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    script = FIRST.replace("FOLDER", str(folder))
    # It ends with this process, even if that is killed.
    command = ["setpriv", "--pdeathsig", "KILL", "unshare", *namespaces, "sh", "-c", script]
    first = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "up").exists():
            if first.poll() is not None or time.monotonic() > deadline:
                assert first.stderr is not None
                raise RuntimeError(f"no namespaces: {first.stderr.read().decode().strip()}")
            time.sleep(0.01)
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text()
        daemon = Dockerd(folder, first, int(children.split()[0]), options)
        daemon.start()
        daemon.build()
        yield daemon
        daemon.remove_containers()
        daemon.stop()
        daemon.client().close()
    finally:
        first.kill()  # and with it all processes in its namespaces
        first.wait()
        assert first.stderr is not None
        first.stderr.close()
        subprocess.run(["umount", folder / "small"], check=True)
        shutil.rmtree(folder, ignore_errors=True)


def node_table(name: str, endpoint: str, slots: int = 1, image: str = IMAGE) -> str:
    """A node of a cluster file, whose jobs have a processor on each slot."""
    cpus = ", ".join(["{ cpus = 1.0 }"] * slots)
    return f"""
[[nodes]]
name = "{name}"
endpoint = "{endpoint}"
gpu_type = "cpu"
image = "{image}"
slots = [{cpus}]
"""


def mounts() -> tuple[Path, ...]:
    """Files of this machine that containers need."""
    system = [Path(name) for name in ("/usr", "/lib", "/lib64", "/bin") if Path(name).exists()]
    return (*system, Path(sys.base_prefix), packages())


def cluster(
    daemon: Dockerd,
    storage: Path,
    *,
    nodes: Mapping[str, str] | None = None,
    gpus: int = 4,
    image: str = IMAGE,
    limits: ContainerLimits = LIMITS,
    **options: Any,
) -> Nodes:
    """Nodes of one machine.

    Args:
        daemon: The machine's daemon.
        storage: Folder of the jobs' output.
        nodes: Endpoints by name; by default one node.
        gpus: Emulated GPUs of each node.
        image: Image of the containers.
        limits: Limits of a container, per GPU.
        options: Other fields of `Nodes`.
    """
    slots = (Gpu(cpus=1.0),) * gpus
    named = nodes or {"one": daemon.endpoint}
    return Nodes(
        tuple(Node(name, endpoint, "cpu", image, slots) for name, endpoint in named.items()),
        storage,
        "1000:1000",
        limits=limits,
        **{
            "mounts": mounts(),
            "grace_seconds": 10.0,
            "hung_rounds": 1_000,
            "images": (PLAIN,),
            **options,
        },
    )


def mixed(nodes: Nodes, cpus: float) -> Nodes:
    """The GPUs of a node as two pools: the second half are slots of another size and type."""
    (node,) = nodes.nodes
    half = len(node.gpus) // 2
    slow = replace(node, name="slow", gpu_type="slow", gpus=(Gpu(cpus=cpus),) * half)
    return replace(nodes, nodes=(replace(node, gpus=node.gpus[:half]), slow))


def with_slots(nodes: Nodes, cpus: float) -> Nodes:
    """The same nodes with emulated GPUs of another size."""
    return replace(
        nodes,
        nodes=tuple(replace(node, gpus=(Gpu(cpus=cpus),) * len(node.gpus)) for node in nodes.nodes),
    )
