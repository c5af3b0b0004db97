"""Faults while a service starts users' Slurm jobs: `python -m harness.slurm_faults --faults 200`.

    python -m harness.slurm_faults [--faults 200] [--seed 1] [--kinds NAME,NAME...]

Two users submit jobs of all kinds, while the scheduler, Slurm's daemons, nodes and jobs' processes
are killed or stopped, users hold, release, requeue and cancel, others take GPUs, and commands
answer late or garbled. Then all is mended, and each job must have ended, no GPU may have had two
processes, no saving job may have counted twice, and the records must pass their audit. Prints the
faults by kind and what was wrong; exits with 1 if anything was.

A controller that is killed within seconds of a change forgets it, and an operator can requeue what
it wants: how a job ended is compared with how it should where no fault was about jobs.
"""

import argparse
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from harness.markdown import markdown
from harness.slurm import DAEMONS, GARBLED, Slurm, missing, replaced, slurm
from harness.slurm_files import NODES
from harness.slurm_users import (
    Scheduler,
    UserJob,
    Users,
    find_different,
    find_wrongs,
    make_jobs,
    make_options,
    read_file,
    scheduler,
)
from harness.waiting import wait_for
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit

ACTIVE = 10
"""Jobs that are kept in the queue."""
GAP_SECONDS = 2.0
"""Longest time between two faults."""
AWAY_SECONDS = 3.0
"""Longest time for which a daemon or a node is away, where it is not to be missed."""
MISSED_SECONDS = 20.0
"""Time after which a node is down for its controller (`SlurmdTimeout`)."""


@dataclass
class Trial:
    """A service on a Slurm, its users, and the faults that hit them.

    Attributes:
        jobs: The jobs that were submitted.
        touched: Names of jobs of which a fault decides how they end.
    """

    lab: Slurm
    users: Users
    service: Scheduler
    generator: random.Random
    waiting: list[UserJob]
    jobs: list[UserJob] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)

    def pause(self, most: float = AWAY_SECONDS) -> None:
        """Let some time pass."""
        time.sleep(self.generator.uniform(0.0, most))

    def feed(self) -> None:
        """Keep the queue full, and a service up; a Slurm that is away is asked again later."""
        if not self.service.runs:
            self.service.start()
        with suppress(RuntimeError):
            for _ in range(ACTIVE - len(self.users.active())):
                if self.waiting:
                    self.submit()
            self.users.cancel_gone(self.jobs)

    def submit(self) -> None:
        """Submit the next job."""
        job = self.waiting[0]
        self.users.submit(job)
        self.jobs.append(self.waiting.pop(0))

    def pick(self, state: str) -> UserJob | None:
        """Return one of the jobs, not of an array, in a state of Slurm's."""
        states = self.users.states()
        found = [job for job in self.jobs if states.get(self.users.ids[job.name]) == state]
        return self.generator.choice(found) if found else None

    def order(self, state: str, *command: str) -> None:
        """Let a job's owner give an order about it."""
        if job := self.pick(state):
            self.touched.add(job.name)
            self.lab.run(*command, self.users.ids[job.name], user=job.user, check=False)


def _kill(name: str, trial: Trial) -> None:
    trial.lab.kill(name)
    trial.pause()
    trial.lab.start(name)


def _stop(name: str, trial: Trial) -> None:
    trial.lab.send(name, signal.SIGSTOP)
    trial.pause(2 * AWAY_SECONDS)
    trial.lab.send(name, signal.SIGCONT)


def _kill_scheduler(trial: Trial) -> None:
    trial.pause()
    trial.service.end(signal.SIGKILL)
    trial.service.start()


def _kill_after_submission(trial: Trial) -> None:
    if trial.waiting:
        trial.submit()
        trial.touched |= {job.name for job in trial.jobs}
    _kill("slurmctld", trial)


def _kill_after_change(state: str, trial: Trial) -> None:
    """Kill the controller as soon as another job is in a state, or some seconds later."""
    before, until = trial.users.states(), time.monotonic() + 2 * AWAY_SECONDS
    while time.monotonic() < until:
        now = trial.users.states()
        if any(now[one] == state and before.get(one, "") != state for one in now):
            break
    trial.touched |= {job.name for job in trial.jobs}
    _kill("slurmctld", trial)


def _kill_after_requeue(trial: Trial) -> None:
    trial.order("RUNNING", "scontrol", "requeue")
    trial.touched |= {job.name for job in trial.jobs}
    _kill("slurmctld", trial)


def _kill_node(trial: Trial) -> None:
    _kill(trial.generator.choice(NODES), trial)


def _lose_node(trial: Trial) -> None:
    node = trial.generator.choice(NODES)
    trial.touched |= {job.name for job in trial.jobs}
    trial.lab.kill(node)
    time.sleep(MISSED_SECONDS)
    trial.lab.start(node)


def _drain(trial: Trial) -> None:
    node = f"NodeName={trial.generator.choice(NODES)}"
    trial.lab.run("scontrol", "update", node, "State=DRAIN", "Reason=a fault")
    trial.pause(2 * AWAY_SECONDS)
    trial.lab.run("scontrol", "update", node, "State=RESUME")


def _signal_process(trial: Trial, number: int, seconds: float = 0.0) -> None:
    """Send a job's process a signal, and let it go on later."""
    if job := trial.pick("RUNNING"):
        with suppress(OSError, IndexError, RuntimeError):
            process = str(read_file(trial.users.folder / job.name)[0][-1].process)
            trial.touched.add(job.name)
            trial.lab.call("kill", f"-{number}", process)
            time.sleep(seconds)
            trial.lab.call("kill", f"-{signal.SIGCONT}", process)


def _kill_process(trial: Trial) -> None:
    _signal_process(trial, signal.SIGKILL)


def _stop_process(trial: Trial) -> None:
    _signal_process(trial, signal.SIGSTOP, AWAY_SECONDS)


def _storm(trial: Trial) -> None:
    """Let others take GPUs."""
    for _ in range(trial.generator.randint(1, 4)):
        asked = ("--parsable", "--chdir=/", "--output=/dev/null", "--job-name=other", "--gpus=2")
        with suppress(RuntimeError):
            trial.lab.run("sbatch", *asked, "--wrap=sleep 3", user="carol")


def _answer(trial: Trial, *texts: str) -> None:
    """Let one of the operator's commands be one of some scripts for a while."""
    name = trial.generator.choice(("squeue", "scontrol", "sinfo", "sacct"))
    with replaced(trial.lab.commands("operator") / name, trial.generator.choice(texts)):
        trial.pause(2 * AWAY_SECONDS)


FAULTS: dict[str, tuple[int, Callable[[Trial], None]]] = {
    "scheduler killed": (4, _kill_scheduler),
    "controller killed after a submission": (2, _kill_after_submission),
    "controller killed after a release": (2, lambda trial: _kill_after_change("RUNNING", trial)),
    "controller killed after a requeue": (2, _kill_after_requeue),
    "controller stopped": (1, lambda trial: _stop("slurmctld", trial)),
    "node's daemon killed": (2, _kill_node),
    "node lost": (1, _lose_node),
    "node drained": (2, _drain),
    "accounting killed": (1, lambda trial: _kill("slurmdbd", trial)),
    "database killed": (1, lambda trial: _kill("mariadbd", trial)),
    "munge killed": (1, lambda trial: _kill("munged", trial)),
    "process killed": (2, _kill_process),
    "process stopped": (1, _stop_process),
    "cancelled by its owner": (2, lambda trial: trial.order("RUNNING", "scancel")),
    "cancelled before its start": (1, lambda trial: trial.order("PENDING", "scancel")),
    "held by its owner": (2, lambda trial: trial.order("PENDING", "scontrol", "hold")),
    "released by its owner": (1, lambda trial: trial.order("PENDING", "scontrol", "release")),
    "requeued by its owner": (2, lambda trial: trial.order("RUNNING", "scontrol", "requeue")),
    "others' jobs": (2, _storm),
    "answers late": (2, lambda trial: _answer(trial, "sleep 5; exec REAL")),
    "answers garbled": (3, lambda trial: _answer(trial, *GARBLED)),
}
"""What a fault does, with its share."""


def run(
    lab: Slurm, folder: Path, faults: Sequence[str], generator: random.Random
) -> tuple[list[str], int]:
    """Let faults happen, one after the other, until all jobs have ended.

    Returns what was wrong, in words, and the number of jobs.
    """
    users, warehouse = Users.of(lab, folder / "jobs"), folder / "warehouse"
    jobs = make_jobs(ACTIVE + len(faults), generator.randrange(2**32))
    with scheduler(lab, warehouse, make_options("fifo")) as service:
        trial = Trial(lab, users, service, generator, jobs)
        for name in faults:
            trial.feed()
            trial.pause(GAP_SECONDS)
            began = time.monotonic()
            # A command of ours may meet the fault, too.
            with suppress(RuntimeError):
                FAULTS[name][1](trial)
            print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)
        trial.waiting.clear()
        wrong = _end(trial)
    with Inbox(warehouse) as inbox:
        name = inbox.run
    assert name, service.log.read_text()[-4_000:]
    wrong += find_wrongs(users.folder, trial.jobs)
    wrong += [str(finding) for finding in audit(warehouse, name).findings]
    untouched = [job for job in trial.jobs if job.name not in trial.touched]
    different = find_different(untouched, users.ends())
    wrong += [f"{job} ended {end}" for job, end in different.items()]
    return wrong, len(trial.jobs)


def _end(trial: Trial) -> list[str]:
    """Mend what is broken, and wait until all jobs have ended; return what has not."""
    lab = trial.lab
    for name in DAEMONS:
        lab.start(name)

    def left() -> list[str]:
        # Slurm drains nodes on which a job that it forgot still runs.
        lab.run("scontrol", "update", f"NodeName={','.join(NODES)}", "State=RESUME", check=False)
        trial.feed()
        with suppress(RuntimeError):
            lab.run("scancel", "--user=carol")  # Slurm holds her jobs, too
            active = trial.users.active()
            waiting = {one.partition("_")[0] for one, state in active.items() if state == "PENDING"}
            for job in trial.jobs:
                if trial.users.ids[job.name] in waiting:
                    _release(trial, job)
            return [*active]
        return ["Slurm is away"]

    try:
        wait_for(left, lambda jobs: not jobs, END_SECONDS, every=1.0)
    except AssertionError as error:
        return [f"not ended: {error}", lab.run("squeue", "-r", "-o", "%i %j %T %r %q %N")]
    return [f"left over: process {p}" for p in lab.processes("worker.sh")]


def _release(trial: Trial, job: UserJob) -> None:
    """Release a job that its owner or Slurm held; cancel one that Slurm cannot change any more.

    A controller that was killed may wait for ever for what its accounting has answered before.
    """
    job_id = trial.users.ids[job.name]
    try:
        trial.lab.run("scontrol", "release", job_id, user=job.user)
    except RuntimeError as error:
        if STUCK in str(error):
            trial.touched.add(job.name)
            trial.lab.run("scancel", job_id, user=job.user)


STUCK = "the DB index is being set"
"""What Slurm says of a job that it cannot change."""
END_SECONDS = 400.0
"""Time in which all jobs have to end."""


def pick_faults(count: int, kinds: Sequence[str], generator: random.Random) -> list[str]:
    """Return faults in a random order, each kind by its share."""
    weights = [FAULTS[kind][0] for kind in kinds]
    return generator.choices(kinds, weights, k=count)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kinds", default=",".join(FAULTS))
    options = parser.parse_args()
    if lacking := missing():
        parser.error(lacking)
    kinds = options.kinds.split(",")
    if unknown := {*kinds} - FAULTS.keys():
        parser.error(
            f"--kinds: there is no fault {min(unknown)!r}; give some of {'; '.join(FAULTS)}"
        )
    generator = random.Random(options.seed)
    faults = pick_faults(options.faults, kinds, generator)
    with slurm() as lab, tempfile.TemporaryDirectory(dir="/tmp") as text:
        folder = Path(text)
        folder.chmod(0o755)
        wrong, jobs = run(lab, folder, faults, generator)
        log = (folder / "warehouse" / "scheduler.log").read_text()
    print(markdown(["Fault", "Number"], [[k, str(n)] for k, n in Counter(faults).items()]), end="")
    print(f"{len(faults)} faults, {jobs} jobs.")
    print("\n".join(wrong) or "Nothing was wrong.")
    if wrong:
        print(log[-5000:], file=sys.stderr)
    sys.exit(bool(wrong))


if __name__ == "__main__":
    main()
