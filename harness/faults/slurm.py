"""Faults of a Slurm and the jobs of its leases."""

import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import copytree
from subprocess import TimeoutExpired
from typing import NamedTuple

from containers.slurm.cluster import SlurmCluster, SlurmSite, find_cluster
from harness.dockerd import TRAINER, packages, python
from harness.faults.scheduler import ROUND_SECONDS
from harness.faults.trial import GRACE_SECONDS, HUNG_ROUNDS, filled
from harness.slurm import DAEMONS, GARBLED, Slurm, replaced
from harness.slurm_files import NODES
from harness.waiting import wait_for

AWAY_SECONDS = 3.0
"""Longest time for which a daemon is away, where it is not to be missed."""
MISSED_SECONDS = 20.0
"""Time after which a node is down for its controller (`SlurmdTimeout`)."""
START_SECONDS = 30.0
"""Time in which Slurm has to start a lease."""
LEFT_SECONDS = 60.0
"""Time in which all of a run has to be gone, after its end."""
LOOK_SECONDS = 0.3
STOP_SECONDS = 4 * GRACE_SECONDS
"""Time in which the rest of a gang may stop while its job has a new lease."""

_LEASE = re.compile(r"shockwave-(.+)-job-(\d+)-round-\d+\.\d+")
_JOB = re.compile(r"(\d+) shockwave-(.+)-job-(\d+)-round-\d+")


class Program(NamedTuple):
    """A process of a lease: its id, lease, and the node and GPUs that Slurm gave it."""

    number: int
    lease: str
    node: str
    gpus: tuple[str, ...]

    @property
    def job(self) -> tuple[str, int]:
        """Its run and job."""
        found = _LEASE.fullmatch(self.lease)
        assert found, self.lease
        return found[1], int(found[2])


class SlurmMachinery:
    """Four nodes of a Slurm, as a `Machinery`.

    Args:
        spool: Small file system of the nodes' daemons (`SlurmdSpoolDir`).
    """

    def __init__(self, lab: Slurm, spool: Path) -> None:
        self._lab, self._spool = lab, spool
        self._commands = lab.folder / "bin" / "scheduler"
        copytree(lab.commands(), self._commands, dirs_exist_ok=True)
        self._excused: set[str] = set()
        self._at_kill: set[str] = set()
        self.cancelled: set[str] = set()
        """Jobs that `left` cancelled: id and name."""

    def cluster(self, storage: Path) -> SlurmCluster:
        """See `Machinery.cluster`."""
        path = f"PYTHONPATH={TRAINER.parent}:{packages()}"
        site = SlurmSite(
            storage,
            "gpu",
            commands=self._commands,
            trainer=("/usr/bin/env", path, python(), "-m", "trainer"),
            grace_seconds=GRACE_SECONDS,
            hung_rounds=HUNG_ROUNDS,
            start_seconds=START_SECONDS,
        )
        return find_cluster(site)

    def _programs(self) -> list[Program]:
        """The processes of leases that live."""
        found = []
        for number in self._lab.processes(""):
            with suppress(OSError):
                words = self._lab.read(number, "environ").decode(errors="replace").split("\0")
                values = dict(word.split("=", 1) for word in words if "=" in word)
                if lease := values.get("SHOCKWAVE_LEASE"):
                    gpus = tuple(values.get("CUDA_VISIBLE_DEVICES", "").split(","))
                    found.append(Program(number, lease, values.get("SLURMD_NODENAME", ""), gpus))
        return found

    def running(self) -> set[tuple[str, int]]:
        """See `Machinery.running`."""
        return {program.job for program in self._programs()}

    def faults(self, generator: random.Random) -> dict[str, Callable[[], bool]]:
        """See `Machinery.faults`."""

        def pause(most: float = AWAY_SECONDS) -> None:
            time.sleep(generator.uniform(0.0, most))

        def kill(name: str, seconds: float | None = None) -> None:
            """Kill a daemon; start it again soon, or after some seconds."""
            self._lab.kill(name)
            pause() if seconds is None else time.sleep(seconds)
            self._lab.start(name)

        def to_daemon(name: str) -> bool:
            if not self.running():
                return False
            kill(name)
            return True

        def to_node(harm: Callable[[str], object]) -> bool:
            """Harm a node on which a job runs."""
            if not (nodes := sorted({program.node for program in self._programs()} & {*NODES})):
                return False
            harm(generator.choice(nodes))
            return True

        def kill_controller() -> None:
            # It forgets what it has not written, and jobs are killed and their GPUs given away.
            self._excuse()
            self._at_kill |= self._listed("--states=all")
            kill("slurmctld")

        def kill_while_running() -> bool:
            if not self.running():
                return False
            kill_controller()
            return True

        def kill_after_submission() -> bool:
            before, until = self._shown(), time.monotonic() + 3 * ROUND_SECONDS
            while not (new := self._shown().keys() - before.keys()) and time.monotonic() < until:
                time.sleep(0.05)
            if new:
                kill_controller()
            return bool(new)

        def stop_controller() -> bool:
            if not self.running():
                return False
            self._lab.send("slurmctld", signal.SIGSTOP)
            pause(2 * AWAY_SECONDS)
            self._lab.send("slurmctld", signal.SIGCONT)
            return True

        def lose(node: str) -> None:
            self._excuse()
            kill(node, MISSED_SECONDS)

        def drain(node: str) -> None:
            self._lab.run("scontrol", "update", f"NodeName={node}", "State=DRAIN", "Reason=a fault")
            pause(2 * AWAY_SECONDS)  # `mend` resumes it

        def to_program(number: int, *, keeper: bool = False) -> bool:
            """Send a signal to a process of a lease, or to the `slurmstepd` above it."""
            programs = self._programs()
            if not programs:
                return False
            target = generator.choice(programs).number
            if keeper:
                self._excuse()
                target = self._keeper(target)
                if not target:
                    return False
            try:
                self._lab.call("kill", f"-{number}", str(target))
            except RuntimeError:  # it has just ended
                return False
            if number == signal.SIGSTOP:
                pause()
                with suppress(RuntimeError):
                    self._lab.call("kill", f"-{signal.SIGCONT}", str(target))
            return True

        def to_job(*command: str) -> bool:
            if not (ids := list(self._shown())):
                return False
            job_id = generator.choice(ids)
            self._lab.run("scontrol", "update", f"JobId={job_id}", "Requeue=1", check=False)
            try:
                self._lab.run(*command, job_id)
            except RuntimeError:  # it has just ended
                return False
            return True

        def storm() -> bool:
            if not self.running():
                return False
            for _ in range(generator.randint(1, 4)):
                asked = ("--chdir=/", "--output=/dev/null", "--job-name=other", "--gpus=2")
                self._lab.run("sbatch", *asked, "--wrap=sleep 3", user="carol")
            return True

        def answer(*texts: str) -> bool:
            name = generator.choice(("squeue", "scontrol", "sinfo", "sacct", "sbatch", "scancel"))
            called = self._lab.folder / "called"
            script = f"touch {called}; {generator.choice(texts)}"
            with replaced(self._commands / name, script):
                pause(2 * AWAY_SECONDS)
            was_called = called.exists()
            called.unlink(missing_ok=True)
            return was_called

        def fill_spool() -> bool:
            if not self.running():
                return False
            with filled(self._spool):
                pause(2 * ROUND_SECONDS)
            return True

        return {
            "controller killed": kill_while_running,
            "controller killed after a submission": kill_after_submission,
            "controller stopped": stop_controller,
            "node's daemon killed": lambda: to_node(kill),
            "node lost": lambda: to_node(lose),
            "node drained": lambda: to_node(drain),
            "accounting killed": lambda: to_daemon("slurmdbd"),
            "database killed": lambda: to_daemon("mariadbd"),
            "munge killed": lambda: to_daemon("munged"),
            "program killed": lambda: to_program(signal.SIGKILL),
            "program stopped": lambda: to_program(signal.SIGSTOP),
            "slurmstepd killed": lambda: to_program(signal.SIGKILL, keeper=True),
            "cancelled by others": lambda: to_job("scancel"),
            "requeued by others": lambda: to_job("scontrol", "requeue"),
            "others' jobs": storm,
            "answers late": lambda: answer("sleep 5; exec REAL"),
            "answers garbled": lambda: answer(*GARBLED),
            "spool full": fill_spool,
        }

    def _excuse(self) -> None:
        """Expect processes of today's leases to live on while Slurm gives their GPUs away.

        Without control groups Slurm loses sight of them; a lease keeps them from writing.
        """
        self._excused |= {program.lease for program in self._programs()}

    def _keeper(self, number: int) -> int:
        """The `slurmstepd` above a process; 0 if that has ended."""
        with suppress(OSError, ValueError):
            while number and b"slurmstepd" not in self._lab.read(number, "cmdline"):
                number = int(self._lab.read(number, "stat").rpartition(b")")[2].split()[1])
            return number
        return 0

    def _shown(self) -> dict[str, tuple[str, int]]:
        """Run and job of the Slurm jobs of leases that have not ended, by their ids."""
        found = filter(None, map(_JOB.fullmatch, self._listed()))
        return {job[1]: (job[2], int(job[3])) for job in found}

    def _listed(self, *options: str) -> set[str]:
        """Id and name of each of Slurm's jobs; none while it is away."""
        with suppress(RuntimeError, TimeoutExpired):
            return {*self._lab.run("squeue", "-h", *options, "-o", "%A %j").splitlines()}
        return set()

    def mend(self) -> None:
        """See `Machinery.mend`: Slurm drains nodes on which a job that it forgot still runs."""
        for name in DAEMONS:
            self._lab.start(name)
        self._lab.run(
            "scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME", check=False
        )

    def left(self, run: str) -> list[str]:
        """See `Machinery.left`: jobs and processes.

        A controller that was killed may take ended jobs for running ones; those that it knew before
        are cancelled here.
        """

        def ask() -> list[str]:
            self.mend()
            old = {job for job in self._at_kill & self._listed() if f" shockwave-{run}-" in job}
            if old and not any(one.job[0] == run for one in self._programs()):
                self._lab.run("scancel", *(job.split()[0] for job in old), check=False)
                self.cancelled |= old
            jobs = self._lab.run("squeue", "-h", "-o", "%j %i %T %r %N", check=False).splitlines()
            programs = (program for program in self._programs() if program.job[0] == run)
            return [
                *(f"Slurm job {job}" for job in jobs if job.startswith(f"shockwave-{run}-")),
                *(f"process {one.number} of {one.lease}" for one in programs),
            ]

        with suppress(AssertionError):
            return wait_for(ask, lambda left: not left, LEFT_SECONDS, every=1.0)
        return ask()

    @contextmanager
    def watching(self) -> Iterator[list[str]]:
        """See `Machinery.watching`."""
        broken, over, looks = list[str](), threading.Event(), list[int]()

        def watch() -> None:
            since = dict[str, float]()
            while not over.wait(LOOK_SECONDS):
                at = time.monotonic()
                shared = [*find_shared(self._programs(), self._excused)]
                since = {one: since.get(one, at) for one in shared}
                # Not of processes that just end.
                kept = {
                    one
                    for one, first in since.items()
                    if at > first + (0.0 if one.startswith("GPU") else STOP_SECONDS)
                }
                broken.extend(sorted(kept - {*broken}))
                looks.append(len(shared))

        thread = threading.Thread(target=watch)
        thread.start()
        try:
            yield broken
        finally:
            over.set()
            thread.join()
        if not looks:
            broken.append("nobody looked at the processes")


def find_shared(programs: list[Program], excused: set[str]) -> Iterator[str]:
    """Say which GPUs and jobs are in processes of two leases."""
    holders: dict[str, Program] = {}
    for program in sorted(programs):
        run, job_id = program.job
        for thing in (*(f"GPU {gpu} of {program.node}" for gpu in program.gpus), f"{run} {job_id}"):
            other = holders.setdefault(thing, program)
            if other.lease != program.lease and not {other.lease, program.lease} & excused:
                yield f"{thing} is in processes of {other.lease} and {program.lease}"
