"""Do users' jobs end under Shockwave as under Slurm alone?

    python -m benchmarks.slurm_users [--jobs 200] [--policy fifo] [--seed 1]

Two users submit jobs of all kinds with plain `sbatch` (`harness.slurm_users`), first to a Slurm
that starts them by itself, then to one whose partition Shockwave has. Their owners try to start
some of those that wait, and cancel a tenth. Prints how many ended how, and what was wrong; exits
with 1 if anything was. Needs root and the packages of `.ci/run`.
"""

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from containers.runtime import EventKind
from harness.markdown import markdown
from harness.slurm import Slurm, missing, slurm
from harness.slurm_users import (
    Scheduler,
    UserJob,
    Users,
    count_starts,
    find_different,
    find_wrongs,
    make_jobs,
    make_options,
    scheduler,
)
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

TRIES = (("update", "QOS=run"), ("update", "StartTime=now"), ("update", "Priority=1000000"))
"""How owners try to start their jobs."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--policy", default="fifo")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if lacking := missing():
        print(f"left out: {lacking}")
        return
    jobs = make_jobs(options.jobs, options.seed)
    with slurm() as lab, tempfile.TemporaryDirectory(dir="/tmp") as text:
        folder = Path(text)
        folder.chmod(0o755)
        lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=-1")
        alone = Users.of(lab, folder / "alone")
        times = {"Slurm alone": play(alone, jobs)}
        lab.run("sacctmgr", "-i", "modify", "qos", "wait", "set", "GrpJobs=0")
        users = Users.of(lab, folder / "brain")
        with scheduler(lab, folder / "warehouse", make_options(options.policy)) as service:
            times["Shockwave"] = play(users, jobs, service)
        rows, wrong = [], find_wrongs(users.folder, jobs)
        for name, them in (("Slurm alone", alone), ("Shockwave", users)):
            ends = them.ends()
            counted = Counter(state for state, _ in ends.values())
            said = ", ".join(f"{n} {state.lower()}" for state, n in sorted(counted.items()))
            rows.append([name, said, f"{times[name]:.0f}"])
            wrong += [
                f"{name}: {job} ended {end}" for job, end in find_different(jobs, ends).items()
            ]
        wrong += check_records(folder / "warehouse", users, jobs)
    print(markdown(["Decides", "Jobs and tasks", "Makespan (s)"], rows), end="")
    print("\n".join(wrong) or "Nothing was wrong.")
    sys.exit(bool(wrong))


def check_records(warehouse: Path, users: Users, jobs: Sequence[UserJob]) -> list[str]:
    """Find what the service's records do not explain, in words: starts without a lease."""
    with Inbox(warehouse) as inbox:
        run = inbox.run
    wrong = [str(finding) for finding in audit(warehouse, run).findings]
    records = [record for record, _ in Reader(warehouse).records(run)]
    names = {spec.job_id: spec.name for record in records for spec in record.arrivals}
    launched = Counter(
        names[event.job_id]
        for record in records
        for event in record.events
        if event.kind in (EventKind.STARTED, EventKind.RESUMED)
    )
    for job in jobs:
        began = count_starts(users.folder, job)
        if began > launched[job.name]:
            wrong.append(f"{job.name}: began {began} times, launched {launched[job.name]} times")
    return wrong


def play(users: Users, jobs: Sequence[UserJob], service: Scheduler | None = None) -> float:
    """Submit jobs, and wait until all have ended; returns the seconds that it took.

    With a service, owners try to start jobs that wait, and cancel some of those, too.
    """
    began = time.monotonic()
    for number, job in enumerate(jobs):
        users.submit(job)
        if service and number % 10 == 0:
            try_to_start(users.lab, job, users.ids[job.name])
    if service:
        users.cancel_gone([job for job in jobs if job.kind == "gone"][::2], waiting=True)
    while users.active():
        users.cancel_gone(jobs)
        assert service is None or service.runs, service.log.read_text()
        time.sleep(1.0)
    return time.monotonic() - began


def try_to_start(lab: Slurm, job: UserJob, job_id: str) -> None:
    """Let a job's owner try to start it; it must not help."""
    for command, change in TRIES:
        lab.run("scontrol", command, f"JobId={job_id}", change, user=job.user, check=False)
    lab.run("scontrol", "release", job_id, user=job.user, check=False)
    lab.run("scontrol", "top", job_id, user=job.user, check=False)


if __name__ == "__main__":
    main()
