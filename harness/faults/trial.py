"""Fault injection into runs, and the invariants that must hold."""

import errno
import os
import pickle
import random
import shutil
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker.errors

from benchmarks.alone import losses, train_alone
from containers.docker.rendering import JOB, RUN
from containers.leasing.telemetry import LINES
from containers.runtime import EventKind
from harness.dockerd import Dockerd, cluster
from harness.faults.scheduler import BOUNDARIES, Scheduler, Stuck, runs
from harness.faults.watch import Watch
from harness.waiting import HANG_SECONDS
from predictor.job import JobSpec
from tasks.sources import Workload
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

STORAGE_BYTES = 2**28


@dataclass
class Trial:
    """Fault injection into runs, and its outcome.

    Attributes:
        daemon: The daemon of the containers.
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

    daemon: Dockerd
    folder: Path
    storage: Path
    workload: Workload
    random: random.Random
    injected: Counter[str] = field(default_factory=Counter)
    harmed_at: float = field(default_factory=time.monotonic)
    harmed: set[Path] = field(default_factory=set)
    broken: list[str] = field(default_factory=list)
    runs: int = 0

    def endure(self, faults: int) -> None:
        """Run after run, until all faults had an effect and the last run has ended or hangs."""
        scheduler = Scheduler(self.folder)
        kinds = self._order(faults)
        try:
            while True:
                self._next_run(scheduler)
                while not scheduler.ended():
                    time.sleep(self.random.uniform(0.3, 1.5))
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
            self.harmed_at = time.monotonic()
            return
        kinds.insert(0, kind)
        if time.monotonic() - self.harmed_at > HANG_SECONDS:
            raise Stuck(f"no fault did harm in {HANG_SECONDS:g} s, the last: {kind}")

    def _order(self, faults: int) -> list[str]:
        """Kinds of faults, each as often as the others, in random order."""
        kinds = list(self._faults(Scheduler(self.folder)))
        chosen = [kinds[number % len(kinds)] for number in range(faults)]
        self.random.shuffle(chosen)
        return chosen

    def _next_run(self, scheduler: Scheduler) -> None:
        endpoints = dict.fromkeys(("one", "two"), self.daemon.endpoint)
        options = {"nodes": endpoints, "gpus": 2, "grace_seconds": 5.0, "hung_rounds": 24}
        options["least_free"] = STORAGE_BYTES // 16  # checkpoints take less
        nodes = cluster(self.daemon, self.storage, **options)
        (self.folder / "given").write_bytes(pickle.dumps((nodes, self.workload, self.runs)))
        self.harmed.clear()
        scheduler.since = time.time()
        scheduler.ensure()

    def _faults(self, scheduler: Scheduler) -> dict[str, Callable[[], bool]]:
        """By kind, a function that injects a fault and returns whether it had an effect."""
        boundaries = {
            f"scheduler, {name}": lambda name=name: scheduler.die_at(name) for name in BOUNDARIES
        }
        return boundaries | {
            "scheduler, any moment": scheduler.kill,
            "container killed": lambda: self._to_container(lambda c: c.kill()),
            "container removed": lambda: self._to_container(lambda c: c.remove(force=True)),
            "container hung": lambda: self._to_container(lambda c: c.pause()),
            "daemon restarted": self._restart,
            "daemon killed": self._kill_daemon,
            "telemetry torn": lambda: self._to_telemetry(b'{"epoch": 1, "batch_si'),
            "telemetry garbled": lambda: self._to_telemetry(b'\x00\xff{]}\n{"epoch": "x"}\n\n'),
            "storage full": self._fill,
        }

    def _running(self) -> list[Any]:
        """The running containers of the runs."""
        running: list[Any] = self.daemon.client().containers.list(
            filters={"label": RUN, "status": "running"}
        )
        return running

    def _to_container(self, harm: Callable[[Any], None]) -> bool:
        try:
            running = self._running()
            if running:
                harm(self.random.choice(running))
        except docker.errors.APIError:  # it ended just now
            return False
        return bool(running)

    def _restart(self) -> bool:
        self.daemon.stop()
        self.daemon.start()
        return True

    def _kill_daemon(self) -> bool:
        number = (self.daemon.folder / "pid").read_text()
        subprocess.run(self.daemon.within("kill", "-KILL", number), check=True)
        assert self.daemon.process is not None
        self.daemon.process.wait()
        # A number in these files may be that of another process by now.
        (self.daemon.folder / "pid").unlink()
        (self.daemon.folder / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)
        self.daemon.start()
        return True

    def _to_telemetry(self, text: bytes) -> bool:
        """Write into the telemetry of a running job."""
        with suppress(docker.errors.APIError):  # a container ended just now
            labels = [container.labels for container in self._running()]
            jobs = {self.storage / label[RUN] / f"job-{label[JOB]}" for label in labels}
            if reporting := sorted(job for job in jobs if (job / LINES).exists()):
                job = self.random.choice(reporting)
                self.harmed.add(job)
                with (job / LINES).open("ab") as file:
                    file.write(text)
                return True
        return False

    def _fill(self) -> bool:
        """Fill the storage for a while, if any job is running."""
        try:
            if not self._running():
                return False
        except docker.errors.APIError:  # a container ended just now
            return False
        filler = self.storage / "filler"
        try:
            with filler.open("wb") as file:
                while True:
                    file.write(bytes(2**20))
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
        time.sleep(self.random.uniform(1.0, 3.0))
        filler.unlink()
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
        self.broken += [f"{name}: {rest} is left" for rest in self._left(name)]
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

    def _left(self, name: str) -> list[str]:
        """Leftover containers and networks of a run, in words."""
        networks = self.daemon.client().networks.list(filters={"label": f"{RUN}={name}"})
        left = [f"container {container.name}" for container in self.daemon.containers(name)]
        return left + [f"network {network.name}" for network in networks]


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
    daemon: Dockerd, storage: Path, folder: Path, workload: Workload, faults: int, seed: int
) -> Trial:
    """Inject faults into runs of some jobs; returns the outcome."""
    train_alone(workload.specs, folder / "alone")
    outcome = Trial(daemon, folder, storage, workload, random.Random(seed))
    watch = Watch(daemon)
    with watch.watching():
        outcome.endure(faults)
    outcome.broken += watch.broken
    if not (watch.looks and watch.whole):
        outcome.broken.append("nobody looked at the containers, or not to the end")
    return outcome
