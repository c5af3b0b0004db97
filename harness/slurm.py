"""A private Slurm in its own namespaces: four nodes of four GPUs of two types, with accounting.

    python -m harness.slurm up FOLDER                     start it, until `down`
    python -m harness.slurm run FOLDER USER COMMAND...    run one of Slurm's commands as a user
    python -m harness.slurm kill|start FOLDER DAEMON      one daemon, by its name
    python -m harness.slurm down FOLDER                   end it and remove the folder

Its processes, jobs included, are in namespaces that end with their first process. Nothing of the
machine is changed: its users are known there only, and its ports are of a network of its own.
GPUs are device nodes that do nothing. Needs root and the packages of `.ci/run`.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from harness.slurm_files import NODES, USERS, write_files
from harness.up import running
from harness.waiting import wait_for

NEEDED = ("munged", "slurmctld", "slurmd", "slurmdbd", "mariadbd", "unshare", "nsenter", "setpriv")
COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sinfo", "sacct", "sacctmgr", "srun")
START_SECONDS = 120.0
"""Timeout, far above the time on a busy machine."""
CALL_SECONDS = 30.0
"""Timeout of a command: those of accounting wait for a daemon that is away."""

DAEMONS = ("munged", "mariadbd", "slurmdbd", "slurmctld", *NODES)
"""The daemons, in the order in which they start."""
FIRST = """
set -e
ip link set lo up
# slurmdbd looks its host up, which fails where loopback is the only address.
ip address add 192.0.2.1/32 dev lo
mount --bind FOLDER/etc/passwd /etc/passwd
mount --bind FOLDER/etc/group /etc/group
touch FOLDER/up
# It reaps what its parent has left behind.
exec PYTHON -c 'import signal
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
while True: signal.pause()'
"""

ACCOUNTS = """
add account research Description=research Organization=lab
add account production Description=production Organization=lab
add qos wait set GrpJobs=0
add qos run
add user alice Account=research Fairshare=2 QOS=wait DefaultQOS=wait
add user bob Account=production Fairshare=1 QOS=wait DefaultQOS=wait
add user carol Account=research QOS=normal
add user root Account=research AdminLevel=Admin
add user operator Account=research AdminLevel=Operator
"""


def missing() -> str:
    """What a Slurm needs and this machine lacks, in words; empty if nothing."""
    if os.geteuid():
        return "only root can start a Slurm"
    lacking = [name for name in NEEDED if shutil.which(name, path=_path()) is None]
    return f"no {', '.join(lacking)} on this machine" if lacking else ""


def _path() -> str:
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


@dataclass(frozen=True)
class Slurm:
    """A Slurm whose daemons can be stopped, killed and started again.

    Attributes:
        folder: All its files, under a path short enough for its sockets.
        inside: Id of the first process in its namespaces.
    """

    folder: Path
    inside: int

    def commands(self, user: str = "root") -> Path:
        """A folder with Slurm's commands, which run as that user wherever they are called."""
        return self.folder / "bin" / user

    def run(self, *command: str, user: str = "root", check: bool = True) -> str:
        """Run one of Slurm's commands as a user; returns what it printed.

        Raises:
            RuntimeError: It failed, and `check` is set; the text is what it said.
        """
        done = subprocess.run(
            [str(self.commands(user) / command[0]), *command[1:]],
            capture_output=True,
            text=True,
            timeout=CALL_SECONDS,
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr or done.stdout}")
        return done.stdout

    def within(self, *command: str) -> list[str]:
        """A command, to be run as root in its namespaces."""
        return ["nsenter", "-t", str(self.inside), "-n", "-m", "-p", *command]

    def call(self, *command: str, timeout: float | None = None) -> None:
        """Run a command as root in its namespaces.

        Raises:
            RuntimeError: It failed; the text is what it said.
        """
        env = {"PATH": _path(), "SLURM_CONF": f"{self.folder}/etc/slurm.conf"}
        done = subprocess.run(
            self.within(*command), env=env, capture_output=True, text=True, timeout=timeout
        )
        if done.returncode:
            raise RuntimeError(f"{command[0]}: {done.stderr or done.stdout}")

    def process(self, name: str) -> int:
        """Id of a daemon in its namespaces; 0 while it does not run."""
        with suppress(OSError, ValueError):
            number = int((self.folder / "pid" / name).read_text())
            if self.runs(number):
                return number
        return 0

    def runs(self, number: int) -> bool:
        """Whether a process of its namespaces lives."""
        return Path(f"/proc/{self.inside}/root/proc/{number}").exists()

    def processes(self, words: str) -> list[int]:
        """Ids of the processes in its namespaces whose command line contains words."""
        found = []
        for entry in Path(f"/proc/{self.inside}/root/proc").glob("[0-9]*"):
            number = int(entry.name)
            with suppress(OSError):
                if words.encode() in self.read(number, "cmdline").replace(b"\0", b" "):
                    found.append(number)
        return sorted(found)

    def read(self, number: int, name: str) -> bytes:
        """Read a file of `/proc` about a process of its namespaces, such as `environ`."""
        return Path(f"/proc/{self.inside}/root/proc/{number}/{name}").read_bytes()

    def start(self, name: str) -> None:
        """Start a daemon, and wait until it answers; a node's until the controller says so."""
        if self.process(name):
            return
        folder, conf = str(self.folder), f"{self.folder}/etc/slurm.conf"
        socket_file = self.folder / "munge" / "socket"
        if name == "munged":
            socket_file.unlink(missing_ok=True)
        command = {
            "munged": [
                *("munged", "--foreground", "--force", f"--key-file={folder}/munge/key"),
                *(f"--socket={socket_file}", f"--pid-file={folder}/munge/pid"),
                *(f"--log-file={folder}/munge/log", f"--seed-file={folder}/munge/seed"),
            ],
            "mariadbd": [
                *("mariadbd", "--no-defaults", "--user=mysql", f"--datadir={folder}/db"),
                f"--tmpdir={folder}/own",
                *(f"--socket={folder}/own/db", f"--pid-file={folder}/db/pid", "--port=3306"),
                *("--bind-address=127.0.0.1", "--innodb-lock-wait-timeout=900"),
                *("--innodb-flush-log-at-trx-commit=0", "--max-allowed-packet=64M"),
                *("--innodb-buffer-pool-size=32M", "--performance-schema=OFF"),
                *("--skip-log-bin", "--skip-name-resolve"),
            ],
            "slurmdbd": [
                *("setpriv", "--reuid=slurm", "--regid=slurm", "--init-groups", "slurmdbd", "-D"),
            ],
            "slurmctld": ["slurmctld", "-D", "-f", conf],
        }.get(name, ["slurmd", "-D", "-N", name, "-f", conf])
        # It belongs to the first process, so that it can be stopped and killed alone.
        script = 'log=$1 pid=$2; shift 2; setsid "$@" >>"$log" 2>&1 </dev/null & echo $! >"$pid"'
        self.call(
            "sh", "-c", script, "sh", f"{folder}/log/{name}.out", f"{folder}/pid/{name}", *command
        )
        answers: dict[str, Callable[[], bool]] = {
            "munged": socket_file.exists,
            "mariadbd": lambda: self._answers("mariadb-admin", *self._as_root, "ping"),
            "slurmdbd": lambda: self._answers("sacctmgr", "-n", "show", "cluster"),
            "slurmctld": lambda: self._answers("scontrol", "ping") and self._has_nodes(),
        }
        answered = answers.get(name, lambda: self._in_service(name))

        def ready() -> bool:
            if not self.process(name):
                raise RuntimeError(f"{name} ended: {self.said(name)}")
            return answered()

        wait_for(ready, seconds=START_SECONDS, every=0.05)

    @property
    def _as_root(self) -> tuple[str, ...]:
        return "--no-defaults", f"--socket={self.folder}/own/db", "-uroot"

    def _answers(self, *command: str) -> bool:
        with suppress(RuntimeError, subprocess.TimeoutExpired):
            self.call(*command, timeout=CALL_SECONDS)
            return True
        return False

    def _has_nodes(self) -> bool:
        """Whether all nodes whose daemons run have registered with their controller."""
        return all(self._in_service(node) for node in NODES if self.process(node))

    def _in_service(self, node: str) -> bool:
        """Whether a node answers its controller; it need not, while that is away."""
        if not self.process("slurmctld"):
            return True
        state = self.run("sinfo", "-h", "-N", "-n", node, "-o", "%T", check=False)
        return bool(state.strip()) and not state.strip().endswith("*") and "unk" not in state

    def said(self, name: str) -> str:
        """The end of a daemon's log."""
        logs = (self.folder / "log").glob(f"{name}.*")
        return "\n".join(path.read_text(errors="replace")[-1000:] for path in logs)

    def send(self, name: str, number: int) -> None:
        """Send a signal to a daemon that runs."""
        if process := self.process(name):
            self.call("kill", f"-{number}", str(process))

    def stop(self, name: str, number: int = signal.SIGTERM) -> None:
        """End a daemon by a signal, and wait until it is gone."""
        self.send(name, number)
        wait_for(lambda: self.process(name), lambda left: not left, START_SECONDS)

    def kill(self, name: str) -> None:
        """End a daemon by SIGKILL; jobs of a node's run on."""
        self.stop(name, signal.SIGKILL)

    @contextmanager
    def stopped(self, name: str, number: int = signal.SIGKILL) -> Iterator[None]:
        """Be without a daemon for a while."""
        self.stop(name, number)
        try:
            yield
        finally:
            self.start(name)

    def saved(self) -> None:
        """Wait until the controller has saved a change of its jobs, seconds after it."""
        file, now = self.folder / "state" / "job_state", time.time()
        wait_for(lambda: file.exists() and file.stat().st_mtime > now)

    def clear(self) -> None:
        """Cancel all jobs and reservations, put all nodes in service, wait until they are empty."""
        self.run("scancel", "--signal=KILL", "--full", *self._all_jobs(), check=False)
        self.run("scancel", *self._all_jobs(), check=False)
        self.run("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME", check=False)
        wait_for(lambda: self._all_jobs(), lambda left: not left, START_SECONDS, every=0.1)
        reserved = self.run("scontrol", "--oneliner", "show", "reservation").splitlines()
        for name in (line.split()[0] for line in reserved if line.startswith("Reservation")):
            self.run("scontrol", "delete", name)

    def _all_jobs(self) -> list[str]:
        return self.run("squeue", "-h", "-o", "%A").split()


def _write_commands(slurm: Slurm) -> None:
    """Write Slurm's commands, for each user."""
    for user in ("root", *USERS):
        slurm.commands(user).mkdir()
        become = f"setpriv --reuid={user} --regid={user} --clear-groups " if user in USERS else ""
        for command in COMMANDS:
            path = slurm.commands(user) / command
            real = shutil.which(command, path=_path())  # the PATH may begin with this folder
            path.write_text(
                f"#!/bin/sh\nexport SLURM_CONF={slurm.folder}/etc/slurm.conf\n"
                f'exec nsenter -t {slurm.inside} -n -m {become}{real} "$@"\n'
            )
            path.chmod(0o755)


def _start_all(
    folder: Path, settings: dict[str, str], *, keep: bool
) -> tuple[Slurm, "subprocess.Popen[bytes]"]:
    """Start the namespaces and all daemons; without `keep` they end with this process."""
    write_files(folder, settings)
    script = FIRST.replace("FOLDER", str(folder)).replace("PYTHON", sys.executable)
    namespaces = ("--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc")
    command = ["unshare", *namespaces, "sh", "-c", script]
    if not keep:
        command = ["setpriv", "--pdeathsig", "KILL", *command]
    log = (folder / "log" / "first.out").open("wb")
    with log:
        first = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=keep)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not (folder / "up").exists():
            if first.poll() is not None or time.monotonic() > deadline:
                said = (folder / "log" / "first.out").read_text().strip()
                raise RuntimeError(f"no namespaces: {said}")
            time.sleep(0.01)
        children = Path(f"/proc/{first.pid}/task/{first.pid}/children").read_text()
        slurm = Slurm(folder, int(children.split()[0]))
        (folder / "first").write_text(f"{first.pid} {slurm.inside}")
        _write_commands(slurm)
        _prepare_database(slurm)
        for name in DAEMONS:
            slurm.start(name)
            if name == "slurmdbd":
                slurm.call("sacctmgr", "-i", "add", "cluster", "lab", timeout=CALL_SECONDS)
        return slurm, first
    except BaseException:
        first.kill()
        first.wait()
        raise


def _prepare_database(slurm: Slurm) -> None:
    folder = slurm.folder
    slurm.call(
        *("mariadb-install-db", "--no-defaults", "--user=mysql", f"--datadir={folder}/db"),
        *("--skip-test-db", "--auth-root-authentication-method=normal"),
        f"--tmpdir={folder}/own",  # its temporary files have the same names in each namespace
    )
    slurm.start("mariadbd")
    password = (folder / "etc" / "password").read_text()
    made = "CREATE DATABASE slurm; GRANT ALL ON slurm.* TO slurm@127.0.0.1 IDENTIFIED BY "
    slurm.call("mariadb", *slurm._as_root, "-e", f"{made}'{password}'")


def _add_accounts(slurm: Slurm) -> None:
    for line in ACCOUNTS.split("\n"):
        if line:
            slurm.call("sacctmgr", "-i", *line.split(), timeout=CALL_SECONDS)


GARBLED = (
    *("REAL | head -c 700", "REAL | tr 0-9 x", "REAL | sed 1d | head -n 3", "exit 1"),
    "head -c 500 /dev/urandom",
)
"""Scripts that garble what a command prints, for `replaced`."""


@contextmanager
def replaced(path: Path, text: str) -> Iterator[None]:
    """Let one of the commands be a script for a while; `REAL` in it is the command."""
    kept = path.with_suffix(".real")
    path.rename(kept)
    try:
        path.write_text("#!/bin/sh\n" + text.replace("REAL", f'"{kept}" "$@"') + "\n")
        path.chmod(0o755)
        yield
    finally:
        kept.rename(path)


@contextmanager
def slurm(**settings: str) -> Iterator[Slurm]:
    """A Slurm with its users, accounts and QOS, within the context.

    Args:
        settings: Lines of its `slurm.conf` that replace others, such as `RequeueExit="75"`.

    Raises:
        RuntimeError: It cannot be started; the text says why.
    """
    folder = Path(tempfile.mkdtemp(prefix="sw-slurm-", dir="/tmp"))
    try:
        made, first = _start_all(folder, settings, keep=False)
        try:
            _add_accounts(made)
            yield made
        finally:
            first.kill()  # and with it all processes in its namespaces
            first.wait()
            wait_for(lambda: running({made.inside}), lambda left: not left)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _read(folder: Path) -> tuple[int, Slurm]:
    first, inside = (folder / "first").read_text().split()
    return int(first), Slurm(folder, int(inside))


def main(arguments: Sequence[str]) -> None:
    """Run a command of the module's documentation."""
    order, folder, *rest = arguments
    path = Path(folder).absolute()
    if order == "up":
        path.mkdir(parents=True)
        began = time.monotonic()
        made, _ = _start_all(path, {}, keep=True)
        _add_accounts(made)
        print(f"{time.monotonic() - began:.1f} s; commands in {made.commands()}")
    elif order == "run":
        print(_read(path)[1].run(*rest[1:], user=rest[0]), end="")
    elif order in ("kill", "start"):
        getattr(_read(path)[1], order)(*rest)
    elif order == "down":
        first, made = _read(path)
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: running({made.inside}), lambda left: not left)
        shutil.rmtree(path)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
