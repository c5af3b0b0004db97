"""Fault injection into runs, and the invariants that must hold."""

import errno
import os
import pickle
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from benchmarks.alone import losses, train_alone
from containers.leasing.telemetry import LINES
from containers.runtime import EventKind
from flows.runs.cluster_file import AnyCluster
from harness.faults.scheduler import BOUNDARIES, Scheduler, Stuck, runs
from harness.waiting import HANG_SECONDS
from predictor.errors import InputError
from predictor.job import JobSpec
from tasks.sources import Workload
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

STORAGE_BYTES = 2**28
GRACE_SECONDS, HUNG_ROUNDS = 5.0, 24
"""Of the runs' clusters."""


class Machinery(Protocol):
    """What runs the jobs of the runs, and the faults that can happen to it."""

    def cluster(self, storage: Path) -> AnyCluster:
        """Return its nodes, for a run."""

    def running(self) -> set[tuple[str, int]]:
        """Return run and id of the jobs that run; none while that is not known."""

    def faults(self, generator: random.Random) -> dict[str, Callable[[], bool]]:
        """By kind, a function that injects a fault and returns whether it had an effect."""

    def mend(self) -> None:
        """Repair what a fault has broken for good; called between faults."""

    def left(self, run: str) -> list[str]:
        """Return what an ended run has left behind, in words."""

    def watching(self) -> AbstractContextManager[list[str]]:
        """Look all the time for jobs and GPUs that are used twice; the list has what was found."""


@dataclass
class Trial:
    """Fault injection into runs, and its outcome.

    Attributes:
        machinery: What runs the jobs.
        folder: Warehouse and logs.
        storage: A file system of its own.
        workload: The jobs of each run.
        random: Source of randomness.
        injected: Faults with an effect, by kind.
        harmed_at: When a fault last had an effect, on the monotonic clock.
        harmed: Folders of jobs of the run under way whose telemetry was written into.
        broken: Broken invariants, in words.
        runs: Runs that ended.
    """

    machinery: Machinery
    folder: Path
    storage: Path
    workload: Workload
    random: random.Random
    injected: Counter[str] = field(default_factory=Counter)
    harmed_at: float = field(default_factory=time.monotonic)
    harmed: set[Path] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    runs: int = 0

    def endure(self, faults: int, of: Sequence[str] | None) -> None:
        """Run after run, until all faults had an effect and the last run has ended or hangs."""
        scheduler = Scheduler(self.folder)
        kinds = self._order(faults, of)
        try:
            while True:
                self._next_run(scheduler)
                while not scheduler.ended():
                    time.sleep(self.random.uniform(0.3, 1.5))
                    self.machinery.mend()
                    if kinds and scheduler.alive:
                        self._try(scheduler, kinds)
                self._judge()
                if not kinds:
                    return
        except Stuck as error:
            self.broken.append(str(error))
        finally:
            scheduler.kill()

    def _try(self, scheduler: Scheduler, kinds: list[str]) -> None:
        """Inject the next fault; a fault without effect comes again after all others.

        Raises:
            Stuck: No fault had an effect for a long time.
        """
        kind = kinds.pop()
        if self._faults(scheduler)[kind]():
            self.injected[kind] += 1
            print(f"{kind}: run {self.runs}", file=sys.stderr, flush=True)
            self.harmed_at = time.monotonic()
            return
        kinds.insert(0, kind)
        if time.monotonic() - self.harmed_at > HANG_SECONDS:
            raise Stuck(f"no fault did harm in {HANG_SECONDS:g} s, the last: {kind}")

    def check(self, kinds: Sequence[str]) -> None:
        """Refuse kinds of faults that there are not.

        Raises:
            InputError: There is no such kind.
        """
        known = self._faults(Scheduler(self.folder))
        for kind in kinds:
            if kind not in known:
                remedy = f"give some of {'; '.join(sorted(known))}"
                raise InputError("kinds", f"there is no fault {kind!r}", remedy)

    def _order(self, faults: int, of: Sequence[str] | None) -> list[str]:
        """Kinds of faults, each as often as the others, in random order."""
        kinds = of or list(self._faults(Scheduler(self.folder)))
        chosen = [kinds[number % len(kinds)] for number in range(faults)]
        self.random.shuffle(chosen)
        return chosen

    def _next_run(self, scheduler: Scheduler) -> None:
        nodes = self.machinery.cluster(self.storage)
        (self.folder / "given").write_bytes(pickle.dumps((nodes, self.workload, self.runs)))
        self.harmed.clear()
        scheduler.since = time.time()
        scheduler.ensure()

    def _faults(self, scheduler: Scheduler) -> dict[str, Callable[[], bool]]:
        """By kind, a function that injects a fault and returns whether it had an effect."""
        boundaries = {
            f"scheduler {name}": lambda name=name: scheduler.die_at(name) for name in BOUNDARIES
        }
        return (
            boundaries
            | {
                "scheduler at any moment": scheduler.kill,
                "telemetry torn": lambda: self._to_telemetry(b'{"epoch": 1, "batch_si'),
                "telemetry garbled": lambda: self._to_telemetry(b'\x00\xff{]}\n{"epoch": "x"}\n\n'),
                "storage full": self._fill,
            }
            | self.machinery.faults(self.random)
        )

    def _to_telemetry(self, text: bytes) -> bool:
        """Write into the telemetry of a running job."""
        jobs = {self.storage / run / f"job-{job_id}" for run, job_id in self.machinery.running()}
        if reporting := sorted(job for job in jobs if (job / LINES).exists()):
            job = self.random.choice(reporting)
            self.harmed.add(job)
            with (job / LINES).open("ab") as file:
                file.write(text)
            return True
        return False

    def _fill(self) -> bool:
        """Fill the storage for a while, if any job is running."""
        if not self.machinery.running():
            return False
        with filled(self.storage):
            time.sleep(self.random.uniform(1.0, 3.0))
        return True

    def _judge(self) -> None:
        """Check the invariants of an ended run."""
        warehouse = self.folder / "warehouse"
        name = runs(self.folder)[-1].name.removeprefix("run=")
        audited = audit(warehouse, name)
        self.broken += [
            f"{name}: {finding.place} {finding.problem}" for finding in audited.findings
        ]
        epochs: Counter[int] = Counter()
        ends: dict[int, list[str]] = {spec.job_id: [] for spec in self.workload.specs}
        for record, _ in Reader(warehouse).records(name):
            for report in record.reports:
                if report.epoch != epochs[report.job_id]:
                    self.broken.append(f"{name}: job {report.job_id} reports {report.epoch} twice")
                epochs[report.job_id] += report.epochs
            for event in record.finished:
                ends[event.job_id].append(f"{event.kind} {event.reason}".rstrip())
        for spec in self.workload.specs:
            if ends[spec.job_id][-1:] != [EventKind.FINISHED]:
                self.broken.append(f"{name}: job {spec.job_id} did not finish: {ends[spec.job_id]}")
            if epochs[spec.job_id] != spec.epochs:
                reported = epochs[spec.job_id]
                self.broken.append(f"{name}: job {spec.job_id} reported {reported} epochs")
            self._judge_losses(name, spec)
        self.broken += [f"{name}: {rest} is left" for rest in self.machinery.left(name)]
        shutil.rmtree(self.storage / name)
        self.runs += 1

    def _judge_losses(self, name: str, spec: JobSpec) -> None:
        """Compare a job's reports with the undisturbed job."""
        job = self.storage / name / f"job-{spec.job_id}"
        there, alone = losses(job), losses(self.folder / "alone" / job.name)
        lost = alone.keys() - there.keys()
        if lost and job not in self.harmed:
            self.broken.append(f"{name}: {job.name} reports nothing of epochs {sorted(lost)}")
        for epoch, each in there.items():
            if each != alone.get(epoch):
                both = f"{sorted(each)} and alone {sorted(alone.get(epoch, ()))}"
                self.broken.append(f"{name}: {job.name} has in epoch {epoch} {both}")


@contextmanager
def filled(folder: Path) -> Iterator[None]:
    """Fill a small file system, within the context."""
    filler = folder / "filler"
    try:
        with filler.open("wb") as file:
            while True:
                file.write(bytes(2**20))
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
    try:
        yield
    finally:
        filler.unlink()


@contextmanager
def file_system(size: int) -> Iterator[Path]:
    """A small file system of its own, that containers' users may pass through."""
    folder = tempfile.mkdtemp(prefix="sw-full-", dir="/tmp")
    options = f"size={size},mode=755"
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    try:
        yield Path(folder)
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)
        os.rmdir(folder)


def trial(
    machinery: Machinery,
    storage: Path,
    folder: Path,
    workload: Workload,
    faults: int,
    seed: int,
    kinds: Sequence[str] | None = None,
) -> Trial:
    """Inject faults into runs of some jobs, by default of all kinds; returns the outcome.

    Raises:
        InputError: There is no such kind.
    """
    outcome = Trial(machinery, folder, storage, workload, random.Random(seed))
    outcome.check(kinds or ())
    train_alone(workload.specs, folder / "alone")
    with machinery.watching() as broken:
        outcome.endure(faults, kinds)
    outcome.broken += broken
    return outcome
