"""Endpoints of a remote Docker daemon: TLS, SSH, and a network between two daemons."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.dockerd import START_SECONDS, Dockerd

NEEDED = ("sshd", "ssh", "ssh-keygen", "docker", "openssl")
PORT = 2376
"""Where a daemon with TLS listens, in its own namespace."""
MOST_STARTS = 8
"""Connections that may start at once; an SSH server drops some above ten by default."""
NEW_KEY = ("-newkey", "rsa:2048", "-nodes")


def missing() -> str:
    """The requirements besides a daemon that this machine lacks; empty if none."""
    lacking = [name for name in NEEDED if shutil.which(name) is None]
    return f"no {', '.join(lacking)} on this machine" if lacking else ""


def _quietly(*command: object) -> None:
    subprocess.run([*map(str, command)], check=True, capture_output=True)


class Authority:
    """A certificate authority, as in docs/docker.md."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        own = ("-x509", "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca.pem")
        self._openssl(folder, "req", *NEW_KEY, *own)

    def issue(self, name: str, use: str) -> Path:
        """A folder with `ca.pem`, `cert.pem` and `key.pem`, for `serverAuth` or `clientAuth`."""
        folder = self.folder / name
        folder.mkdir()
        shutil.copy(self.folder / "ca.pem", folder)
        for_what = "-addext", "subjectAltName=IP:127.0.0.1", "-addext", f"extendedKeyUsage={use}"
        asked = ("-subj", f"/CN={name}", *for_what, "-keyout", "key.pem", "-out", "asked.csr")
        self._openssl(folder, "req", *NEW_KEY, *asked)
        signer = ("-CA", "ca.pem", "-CAkey", f"{self.folder}/ca-key.pem")
        options = ("-copy_extensions", "copy", "-out", "cert.pem")
        self._openssl(folder, "x509", "-req", "-in", "asked.csr", *signer, *options)
        return folder

    def _openssl(self, folder: Path, *command: str) -> None:
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)


def verified(folder: Path) -> tuple[str, ...]:
    """Options of a daemon that listens with these certificates and demands client certificates."""
    return (
        f"--host=tcp://127.0.0.1:{PORT}",
        "--tlsverify",
        f"--tlscacert={folder}/ca.pem",
        f"--tlscert={folder}/cert.pem",
        f"--tlskey={folder}/key.pem",
    )


@dataclass
class Sshd:
    """An SSH server of this machine, with a user and configuration of its own.

    Attributes:
        folder: All its files.
        port: Port on 127.0.0.1, under which the user knows its key.
        process: First process of its namespace; all its sessions end with it.
    """

    folder: Path
    port: int
    process: "subprocess.Popen[bytes] | None" = None

    @property
    def endpoint(self) -> str:
        return f"ssh://root@127.0.0.1:{self.port}"

    def configure(self, daemon: Dockerd) -> None:
        """Write keys and configuration, of both sides."""
        for name in ("host", "user"):
            _quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / name)
        key = (self.folder / "host.pub").read_text()
        (self.folder / "known").write_text(f"[127.0.0.1]:{self.port} {key}")
        (self.folder / "server").write_text(
            f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey {self.folder}/host\n"
            f"AuthorizedKeysFile {self.folder}/user.pub\nStrictModes no\nUsePAM no\n"
            f"MaxStartups {MOST_STARTS}:100:{MOST_STARTS}\n"
            f"PidFile none\nSetEnv DOCKER_HOST={daemon.endpoint}\n"
        )
        (self.folder / "client").write_text(
            f"IdentityFile {self.folder}/user\nIdentitiesOnly yes\nIdentityAgent none\n"
            f"UserKnownHostsFile {self.folder}/known\nGlobalKnownHostsFile /dev/null\n"
            f"Host silent\nProxyCommand sh -c 'echo $$ >{self.folder}/waits; exec sleep 600'\n"
        )
        (self.folder / "bin").mkdir()
        program = self.folder / "bin" / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/client "$@"\n')
        program.chmod(0o755)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        server = f"{shutil.which('sshd')} -D -e -f {self.folder}/server"
        script = f"mount -t tmpfs tmpfs /run && mkdir /run/sshd && exec {server}"
        namespaces = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
        command = ["setpriv", "--pdeathsig", "KILL", *namespaces, "sh", "-c", script]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + START_SECONDS
        while True:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port)):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError((self.folder / "log").read_text())
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it at once, and with it all connections."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Stop it for a while."""
        self.stop()
        try:
            yield
        finally:
            self.start()


@contextmanager
def sshd(daemon: Dockerd, folder: Path) -> Iterator[Sshd]:
    """An SSH server through which `docker` reaches a daemon, and an `ssh` in `bin` that logs in."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = Sshd(folder, free.getsockname()[1])
    server.configure(daemon)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextmanager
def swarm(left: Dockerd, right: Dockerd, network: str) -> Iterator[None]:
    """Two daemons with a cable between them, and a network over it that spans both."""
    ends = (left, "198.51.100.1"), (right, "198.51.100.2")
    first, second = (str(daemon.inside) for daemon in (left, right))
    pair = ("type", "veth", "peer", "name", "cable")
    _quietly("ip", "link", "add", "cable", "netns", first, *pair, "netns", second)
    for daemon, address in ends:
        _quietly(*daemon.within("ip", "address", "add", f"{address}/24", "dev", "cable"))
        _quietly(*daemon.within("ip", "link", "set", "cable", "up"))
    manager, worker = (daemon.client().swarm for daemon in (left, right))
    try:
        manager.init(advertise_addr=ends[0][1], listen_addr=f"{ends[0][1]}:2377")
        token = manager.attrs["JoinTokens"]["Worker"]
        worker.join([ends[0][1]], token, f"{ends[1][1]}:2377", ends[1][1])
        left.client().networks.create(network, driver="overlay", attachable=True, internal=True)
        yield
    finally:
        worker.leave(force=True)
        manager.leave(force=True)
        _quietly(*left.within("ip", "link", "delete", "cable"))
