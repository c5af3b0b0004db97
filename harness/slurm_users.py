"""Jobs of all kinds that two users submit to a Slurm with plain `sbatch`, and what became of them.

Their program counts: it writes a line for each half second, and goes on behind the last line if it
saves on SIGTERM. The lines show which processes ran when, and on which GPUs.
"""

import os
import random
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from flows.scheduler.options import ServiceOptions
from harness.slurm import Slurm
from harness.waiting import wait_for

TICK_SECONDS, ROUND_SECONDS = 0.5, 4.0
LONG = 100_000
"""Ticks of jobs that run until their owner cancels them."""
KINDS = ("plain", "typed", "untyped", "array", "gang", "after", "begin", "fails", "gone", "saves")
"""What jobs are submitted, in turn; a tenth of each is `saves`."""

ACTIVE = frozenset({"PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED"})
"""States of jobs that have not ended."""

TOLD_SECONDS = 120.0
"""Time in which the accounting must hear of ends."""

WORKER = """#!/bin/sh
# Usage: worker.sh FILE TICKS CODE SAVES
file="$1${SLURM_ARRAY_TASK_ID:+_$SLURM_ARRAY_TASK_ID}" n=0
test "$4" = no || n=$(sed -n 's/^tick \\([0-9]*\\) .*/\\1/p' "$file" 2>/dev/null | tail -n 1)
trap 'exit 143' TERM
now() { read up _ </proc/uptime; }
now
echo "begin $$ $up $SLURMD_NODENAME ${SLURM_JOB_GPUS:-none} ${SLURM_RESTART_COUNT:-0}" >>"$file"
n=${n:-0}
while [ "$n" -lt "$2" ]; do
    sleep 0.5
    n=$((n + 1))
    now
    echo "tick $n $$ $up" >>"$file"
done
exit "$3"
"""


@dataclass(frozen=True, slots=True)
class UserJob:
    """A job as its user submits it.

    Attributes:
        options: Options of `sbatch`.
        ticks: Half seconds that it runs for.
        code: Its exit code.
        after: Name of a job that it waits for.
        tasks: Tasks of its array; 0 for none.
    """

    name: str
    kind: str
    user: str
    options: tuple[str, ...]
    ticks: int
    code: int = 0
    after: str = ""
    tasks: int = 0

    @property
    def end(self) -> tuple[str, str]:
        """The state and the exit code that Slurm gives it at its end."""
        if self.kind == "gone":
            return "CANCELLED", ""
        return ("FAILED", f"{self.code}:0") if self.code else ("COMPLETED", "0:0")

    @property
    def saves(self) -> bool:
        """Whether it goes on where it was stopped."""
        return self.kind == "saves"


def make_jobs(count: int, seed: int, most_ticks: int = 10) -> list[UserJob]:
    """Return jobs of all kinds, by alice and bob in turn; an array counts as one."""
    generator, made = random.Random(seed), list[UserJob]()
    for number in range(count):
        kind, user = KINDS[number % len(KINDS)], ("alice", "bob")[number % 2]
        gpus, ticks = generator.randint(1, 4), generator.randint(2, most_ticks)
        options: tuple[str, ...] = (f"--gpus={gpus}", "--time=5")
        code, after, tasks = 0, "", 0
        if kind == "typed":
            options = (f"--gres=gpu:{generator.choice(('a100', 'v100'))}:{gpus}", "--time=5")
        elif kind == "array":
            tasks = 3
            options = ("--array=0-2%2", "--gpus=1", "--time=5")
        elif kind == "gang":
            options = ("--nodes=2", "--gpus-per-node=4", "--time=5")
        elif kind == "after" and made:
            after = made[-1].name
        elif kind == "begin":
            options = (*options, f"--begin=now+{generator.randint(3, 10)}")
        elif kind == "fails":
            code = generator.randint(1, 9)
        elif kind == "gone":
            ticks = LONG
        elif kind == "saves":
            options = (*options, "--comment=shockwave:checkpointing")
            ticks *= 2
        name = f"{kind}-{number}"
        made.append(UserJob(name, kind, user, options, ticks, code, after, tasks))
    return made


@dataclass
class Users:
    """Two users of a Slurm.

    Attributes:
        folder: Folder of their jobs' files, which all may write.
        ids: Slurm's ids of the jobs submitted, by name.
    """

    lab: Slurm
    folder: Path
    ids: dict[str, str]

    @classmethod
    def of(cls, lab: Slurm, folder: Path) -> "Users":
        """Return users with a folder of their own."""
        folder.mkdir(parents=True)
        folder.chmod(0o777)
        (folder / "worker.sh").write_text(WORKER)
        return cls(lab, folder, {})

    def submit(self, job: UserJob) -> str:
        """Submit a job; returns its id.

        Raises:
            RuntimeError: Slurm refuses it, or does not answer.
        """
        after = (f"--dependency=afterany:{self.ids[job.after]}",) if job.after in self.ids else ()
        work = (str(self.folder / job.name), str(job.ticks), str(job.code))
        said = self.lab.run(
            *("sbatch", "--parsable", "--chdir=/", "--output=/dev/null", f"--job-name={job.name}"),
            *(*job.options, *after, str(self.folder / "worker.sh"), *work),
            "yes" if job.saves else "no",
            user=job.user,
        )
        self.ids[job.name] = said.strip()
        return self.ids[job.name]

    def states(self) -> dict[str, str]:
        """States of all jobs and tasks that the controller knows, by id such as `4_1`."""
        shown = self.lab.run("squeue", "-r", "-h", "--states=all", "-o", "%i %T")
        return dict(line.split() for line in shown.splitlines())

    def active(self) -> dict[str, str]:
        """States of the jobs and tasks that have not ended."""
        return {one: state for one, state in self.states().items() if state in ACTIVE}

    def cancel_gone(self, jobs: Sequence[UserJob], *, waiting: bool = False) -> None:
        """Let their owners cancel the jobs that run on for ever, once they run or even before."""
        states = self.states()
        for job in jobs:
            state = states.get(self.ids.get(job.name, ""))
            if job.kind == "gone" and (state == "RUNNING" or (waiting and state == "PENDING")):
                self.lab.run("scancel", self.ids[job.name], user=job.user)

    def ends(self) -> dict[str, tuple[str, str]]:
        """State and exit code of each job and task in the accounting, by name (and `_TASK`).

        The controller tells the accounting late that jobs have ended, so it is waited for.
        """

        def told(ends: Mapping[str, tuple[str, str]]) -> bool:
            return not any(state in ACTIVE for state, _ in ends.values())

        with suppress(AssertionError):
            return wait_for(self._ask_ends, told, TOLD_SECONDS, every=1.0)
        return self._ask_ends()

    def _ask_ends(self) -> dict[str, tuple[str, str]]:
        text = self.lab.run(
            *("sacct", "--allocations", "--allusers", "--noheader", "--parsable2"),
            *("--format=JobID,JobName,State,ExitCode", f"--jobs={','.join(self.ids.values())}"),
        )
        found = {}
        for line in text.splitlines():
            job_id, name, state, code = line.split("|")
            if self.ids.get(name) == job_id.partition("_")[0]:
                task = "".join(job_id.partition("_")[1:])
                found[name + task] = (state.split()[0], code if "CANCELLED" not in state else "")
        return found


@dataclass(frozen=True, slots=True)
class Ran:
    """A process of a job: what it wrote.

    Attributes:
        began: Seconds since the machine started, as is `ended`, its last line.
        ticks: The ticks that it wrote.
    """

    name: str
    process: int
    node: str
    gpus: tuple[str, ...]
    began: float
    ended: float
    ticks: tuple[int, ...]


def read_file(path: Path) -> tuple[list[Ran], list[str]]:
    """Read what the processes of a job or task wrote.

    Returns them, and what is wrong, in words: a process that wrote after a later one had begun.
    """
    ran, wrong = list[Ran](), list[str]()
    for line in path.read_text().splitlines():
        word, *fields = line.split()
        if word == "begin":
            process, began, node, gpus, _ = fields
            held = tuple(gpus.split(",")) if gpus != "none" else ()
            ran.append(Ran(path.name, int(process), node, held, float(began), float(began), ()))
            continue
        tick, process, at = fields
        if not ran or ran[-1].process != int(process):
            wrong.append(f"{path.name}: process {process} wrote beside another")
            continue
        last = ran[-1]
        ticks = (*last.ticks, int(tick))
        ran[-1] = replace(last, ended=float(at), ticks=ticks)
    return ran, wrong


def list_files(folder: Path, job: UserJob) -> list[Path]:
    """Return the files that a job's tasks wrote."""
    names = [f"{job.name}_{task}" for task in range(job.tasks)] or [job.name]
    return [path for name in names if (path := folder / name).exists()]


def count_starts(folder: Path, job: UserJob) -> int:
    """Return how often a job, or all of its tasks, began."""
    return sum(len(read_file(path)[0]) for path in list_files(folder, job))


def find_wrongs(folder: Path, jobs: Sequence[UserJob]) -> list[str]:
    """Find what must not be, in words.

    Two processes of a job write, a saving job counts twice, or two processes have a GPU.
    """
    held, wrong = defaultdict[str, list[Ran]](list), list[str]()
    for job in jobs:
        for path in list_files(folder, job):
            ran, found = read_file(path)
            wrong += found
            ticks = [tick for one in ran for tick in one.ticks]
            if job.saves and ticks != [*range(1, len(ticks) + 1)]:
                wrong.append(f"{path.name}: counted {ticks}")
            for one in ran:
                for gpu in one.gpus:
                    held[f"{one.node} {gpu}"].append(one)
    for gpu, holders in held.items():
        holders.sort(key=lambda one: one.began)
        for before, after in pairwise(holders):
            if after.began < before.ended:
                wrong.append(f"GPU {gpu}: {before.name} and {after.name} at once")
    return wrong


def make_options(policy: str) -> ServiceOptions:
    """Return the settings of a service with rounds as short as the jobs."""
    return ServiceOptions(
        policy=policy,
        driver="plain",
        partition="gpu",
        round_seconds=ROUND_SECONDS,
        restart_seconds=TICK_SECONDS,
    )


@contextmanager
def scheduler(lab: Slurm, warehouse: Path, options: ServiceOptions) -> Iterator["Scheduler"]:
    """The scheduler process of a service on a Slurm, as its operator, within the context."""
    made = Scheduler(lab, warehouse, options)
    made.start()
    try:
        yield made
    finally:
        made.end(signal.SIGTERM)


class Scheduler:
    """A scheduler process that can be killed and started again."""

    def __init__(self, lab: Slurm, warehouse: Path, options: ServiceOptions) -> None:
        self._lab, self._warehouse, self._options = lab, warehouse, options
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What it printed."""
        return self._warehouse / "scheduler.log"

    def start(self) -> None:
        """Start it."""
        path = os.pathsep.join((str(self._lab.commands("operator")), os.environ["PATH"]))
        module = ("-m", "flows.scheduler.scheduler")
        command = [sys.executable, *module, str(self._warehouse), self._options.text]
        self._warehouse.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command,
                env=os.environ | {"PATH": path},
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
            )

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self._process is not None and self._process.poll() is None

    def end(self, number: int = signal.SIGKILL) -> None:
        """End it by a signal."""
        if self._process:
            with suppress(ProcessLookupError):
                self._process.send_signal(number)
            self._process.communicate()  # it closes its input


def find_different(
    jobs: Sequence[UserJob], ends: Mapping[str, tuple[str, str]]
) -> dict[str, tuple[str, str] | None]:
    """Return the jobs and tasks that did not end as they should, with how they did."""
    due = {
        name: job.end
        for job in jobs
        for name in [f"{job.name}_{task}" for task in range(job.tasks)] or [job.name]
    }
    return {name: ends.get(name) for name, end in due.items() if ends.get(name) != end}
