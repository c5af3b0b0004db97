"""Slurm as the engine of leases: one batch job for each.

While Slurm's controller does not answer, calls wait for it: jobs run on, and no lease changes
until it is known again what became of them. A job is known by its name, which is a function of its
lease, and by id, time of submission and restarts together: a controller that was killed forgets
jobs that it had acknowledged, and gives their ids to others.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import RLock

from containers.leasing.engine import (
    KILLED,
    TERMINATED,
    UNSAVED,
    Attempt,
    Exit,
    Found,
    Item,
    Refused,
    Result,
    Usage,
)
from containers.leasing.folder import replace_file
from containers.leasing.telemetry import read_part
from containers.runtime import Lease
from containers.slurm.cluster import SlurmCluster
from containers.slurm.commands import Commands
from containers.slurm.history import list_history
from containers.slurm.inventory import IN_SERVICE, find_foreign, list_nodes
from containers.slurm.lease_jobs import (
    ACTIVE,
    COLUMNS,
    CUT,
    ENDS_BY_SLURM,
    GONE,
    WAITING,
    SeenJob,
    read_job,
)
from containers.slurm.lease_output import bound_log, read_last_words
from containers.slurm.parsing import SlurmAway, read_allocated, read_number
from containers.slurm.rendering import (
    BEGUN,
    PART,
    LeaseMark,
    check_needs,
    log_file,
    read_mark,
    render,
)
from predictor.job import JobSpec
from predictor.parts import Mapper

LOOK_SECONDS = 1.0
"""Time for which an answer of the controller is used again, unless jobs were changed since."""
RETRY_SECONDS = 1.0
"""Time between questions to a controller that does not answer."""
END_SECONDS = 0.2
"""Time between questions whether jobs have ended."""
KILL_SECONDS = 120.0
"""Time in which Slurm has to end a job by SIGKILL, the site's `KillWait` included; the order is
repeated until then."""
AGAIN_SECONDS = 5.0
"""Time between two orders to kill the same job."""
CALLS = 4
"""Calls at a time, so that the controller serves others, too."""

MOST_NAME = 1024
"""Most bytes of a lease's name."""

UNHEARD = frozenset({"unknown", "not_responding"})
"""States of nodes that may soon be down, or answer."""


class SlurmEngine:
    """The jobs of one run's leases on a Slurm.

    Args:
        now: Monotonic clock in seconds.
        sleep: Waits for seconds.
        report: Called with a line when Slurm stops to answer.

    Attributes:
        gone: Always empty: a controller that does not answer is waited for, and nodes that do not
            answer it end their jobs.
    """

    program = "Slurm job"

    def __init__(
        self,
        cluster: SlurmCluster,
        run: str,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        report: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.gone: dict[int, str] = {}
        self.run, self._cluster = run, cluster
        self._slurm = Commands(cluster.site.commands)
        self._now, self._sleep, self._report = now, sleep, report
        self._jobs: dict[str, SeenJob] = {}
        self._looked, self._changed = -LOOK_SECONDS, False
        self._known: dict[str, SeenJob] = {}
        self._waiting: dict[tuple[int, int, int], float] = {}
        self._divided: dict[tuple[int, int, int], dict[str, int]] = {}
        self._problems: dict[int, str] = {}
        self._removed: set[str] = set()
        self._left: set[int] = set()
        self._pool = ThreadPoolExecutor(CALLS)
        # An answer of before a submission must not pass for one of after it.
        self._lock = RLock()

    def close(self) -> None:
        """See `Engine.close`."""
        self._pool.shutdown()

    def check(self, jobs: Iterable[JobSpec]) -> None:
        """See `Engine.check`; what was submitted for these jobs is known from then on."""
        specs = [*jobs]
        check_needs(self._cluster.site.trainer, specs)
        for spec in specs:
            if (last := self._read_submitted(spec.job_id)) and last.name not in self._removed:
                self._known.setdefault(last.name, last)

    def _submitted(self, job_id: int) -> Path:
        """Return the file with a job's last Slurm job, where no job can write."""
        return self._cluster.folder(self.run, job_id).with_suffix(".slurm")

    def _read_submitted(self, job_id: int) -> SeenJob | None:
        with suppress(OSError, ValueError):
            number, comment = self._submitted(job_id).read_text().split(" ", 1)
            if (mark := read_mark(comment)) and mark.run == self.run:
                return SeenJob(mark.lease, mark, (int(number), 0, 0), WAITING)
        return None

    def map(
        self,
        name: str,
        function: Callable[[Item], Result],
        items: Sequence[Item],
        node_of: Callable[[Item], int],
        each: Mapper | None = None,
    ) -> list[Result]:
        """See `Engine.map`; one controller has all jobs, so there are no parts."""
        return list(self._pool.map(function, items))

    def _answer(self, ask: Callable[[], Result]) -> Result:
        """Ask Slurm until it answers: it also refuses what it soon allows again."""
        away = False
        while True:
            try:
                return ask()
            except (SlurmAway, Refused) as error:
                if not away:
                    self._report(f"Slurm does not answer; waiting for it: {error}")
                away = True
                self._sleep(RETRY_SECONDS)

    def other_runs(self) -> set[str]:
        """Return other runs with jobs of this user that have not ended."""
        rows = self._answer(lambda: self._slurm.table("squeue", COLUMNS, "--me", cut=CUT))
        jobs = filter(None, map(read_job, rows))
        return {job.mark.run for job in jobs if job.active} - {self.run}

    def _ask(self) -> dict[str, SeenJob]:
        """Ask for the run's jobs by name, ended ones as long as the controller knows them."""

        def ask() -> dict[str, SeenJob]:
            rows = self._slurm.table("squeue", COLUMNS, "--me", "--states=all", cut=CUT)
            found: dict[str, SeenJob] = {}
            doubles: list[str] = []
            # The first of a name is the lease's; a later one waits for its end, and is cancelled.
            for job in sorted(filter(None, map(read_job, rows)), key=lambda job: job.identity[:2]):
                if job.mark.run != self.run:
                    continue
                if job.name not in found:
                    found[job.name] = job
                elif job.active:
                    doubles.append(job.id)
            self._cancel(doubles)
            return found

        with self._lock:
            self._jobs = jobs = self._answer(ask)
            self._looked, self._changed = self._now(), False
            for job in jobs.values():
                if job.active or job.name in self._known:
                    self._known[job.name] = job
                if job.state == WAITING:
                    self._waiting.setdefault(job.identity, self._looked)
                else:
                    self._waiting.pop(job.identity, None)
            return jobs

    def _cancel(self, ids: Sequence[str], *options: str) -> None:
        """Order jobs to be cancelled or signalled; whether it helped is seen by the next question.

        It fails for jobs that have just ended.
        """
        if ids:
            with suppress(Refused, SlurmAway):
                self._slurm.call("scancel", *options, *ids)
        with self._lock:
            self._changed = True

    def look(self, *, again: bool = False) -> list[Found]:
        """See `Engine.look`; answers may be a second old, unless `again` is set."""
        with self._lock:
            if again or self._changed or self._is_old():
                self._ask()
            for name in self._known.keys() - self._jobs.keys():
                self._known[name] = self._find_end(self._known[name])
            jobs = [job for job in (self._known | self._jobs).values() if self._counts(job)]
        return [found for job in jobs for found in self._spread(job)]

    def _is_old(self) -> bool:
        return self._now() >= self._looked + LOOK_SECONDS

    def _counts(self, job: SeenJob) -> bool:
        """Return whether a job has not ended, or is that of a last lease and was not removed."""
        if job.name in self._removed or job.state == GONE:
            return False
        if job.over and self._last_lease(job.mark.job_id) != job.name:
            self._removed.add(job.name)
            return False
        return True

    def _last_lease(self, job_id: int) -> str:
        return self._read(job_id, "lease")

    def _read(self, job_id: int, name: str) -> str:
        """Read a file in a job's folder; empty if that fails."""
        with suppress(OSError):
            data = read_part(self._cluster.folder(self.run, job_id) / name, 0, MOST_NAME)
            return data.decode(errors="replace")
        return ""

    def _spread(self, job: SeenJob) -> list[Found]:
        """Return a job as its programs on each of its nodes."""
        places = self._cluster.by_node(job.mark.gpus)
        key = "/".join(map(str, job.identity))
        mark, running = job.mark, job.active and not self._waits_too_long(job)
        found = []
        for rank, node in enumerate(places):
            runs = running and self._read_part(job, rank) is None
            entry = (key, job.name, mark.job_id, mark.number, rank, mark.gpus, runs, True, node)
            found.append(Found(*entry))
        return found

    def _read_part(self, job: SeenJob, rank: int) -> int | None:
        """Return the exit code of a part of a gang over nodes; None if it is not known to end."""
        if len(self._cluster.by_node(job.mark.gpus)) == 1:
            return None
        lease, _, code = self._read(job.mark.job_id, f"{PART}{rank}").strip().rpartition(" ")
        return int(code) if lease == job.name and code.isdecimal() else None

    def _waits_too_long(self, job: SeenJob) -> bool:
        """Whether Slurm has let a job wait for too long."""
        since = self._waiting.get(job.identity)
        return since is not None and self._now() > since + self._cluster.site.start_seconds

    def _find_end(self, job: SeenJob) -> SeenJob:
        """Return what accounting says of a job that the controller no longer knows.

        A job that neither knows was forgotten and is `GONE`, as is one whose end accounting cannot
        tell because it is away.
        """
        if job.over:
            return job
        lost = SeenJob(job.name, job.mark, job.identity, GONE)
        with suppress(SlurmAway, Refused):
            for past in list_history(self._slurm, job.id):
                same = (past.raw_id, past.name) == (job.id, job.mark.job_name)
                if same and past.state not in ACTIVE:
                    return SeenJob(job.name, job.mark, job.identity, past.state, "", past.code)
        return lost

    def prepare(self, number: int, lease: Lease, spec: JobSpec, *, shared: bool) -> Attempt:
        """See `Engine.prepare`."""
        if shared:
            raise Refused("Slurm gives a GPU to one job at a time")
        mark = LeaseMark(self.run, spec.job_id, number, 1, lease.gpus)
        name, _, attempt = self._last_lease(spec.job_id).rpartition(".")
        if name == mark.job_name and attempt.isdecimal():  # the round is dispatched again
            mark = mark._replace(attempt=int(attempt))
            if self._has_ended(mark):
                mark = mark._replace(attempt=mark.attempt + 1)
        if len(mark.comment) >= COLUMNS["Comment"]:
            raise Refused("its GPUs are too scattered for the comment of a Slurm job")
        return Attempt(mark.lease, "", (render(self._cluster, mark, spec),))

    def _has_ended(self, mark: LeaseMark) -> bool:
        """Whether a lease's program ran and has ended."""
        if job := (self._known | self._jobs).get(mark.lease):
            return job.over or job.name in self._removed
        return mark.lease in self._removed or self._has_begun(mark)

    def start(self, attempt: Attempt) -> None:
        """See `Engine.start`; after an unclear answer, the controller is asked what it knows."""
        (job,) = attempt.parts
        if self._is_old():
            self._ask()
        while job.mark.lease not in self._known | self._jobs:
            try:
                said = self._slurm.call("sbatch", "--parsable", *job.options, text=job.script)
                number = read_number("sbatch", "job id", said.strip().partition(";")[0])
            except SlurmAway:
                self._ask()
            else:
                known = SeenJob(job.mark.lease, job.mark, (number, 0, 0), WAITING)
                with self._lock:
                    self._known[known.name] = known
                    self._changed = True
                with suppress(OSError):  # it is needed only if accounting has to be asked
                    text = f"{number} {job.mark.comment}"
                    replace_file(self._submitted(job.mark.job_id), text)

    def end(
        self, found: Iterable[Found], grace_seconds: float, each: Mapper | None = None
    ) -> tuple[dict[int, str], list[Found]]:
        """See `Engine.end`; orders are repeated until their effect is seen."""
        entries = [*found]
        names = {entry.name for entry in entries}
        if not names:
            return {}, []
        signalled = self._signal(self._active(names), grace_seconds)
        killed = {job.name for job in self._kill(names)}
        remarks = dict[int, str]()
        for name in names:
            job = self._jobs.get(name)
            if job is not None and name in killed and name in signalled:
                remarks[job.mark.job_id] = (
                    f"killed, as SIGTERM did not end it in {grace_seconds:g} s"
                )
            elif job is not None and name in signalled and job.code == TERMINATED:
                remarks[job.mark.job_id] = UNSAVED
        left = {job.name: job for job in self._active(names)}
        remarks |= {
            job.mark.job_id: f"its Slurm job {job.id} could not be ended: it is {job.state}"
            for job in left.values()
        }
        self._removed |= names - left.keys()
        for name in names - left.keys():
            self._known.pop(name, None)
        return remarks, [entry for entry in entries if entry.name in left]

    def _active(self, names: Collection[str]) -> list[SeenJob]:
        """Ask which of some jobs have not ended."""
        jobs = self._ask()
        return [job for name in names if (job := jobs.get(name)) and not job.over]

    def _signal(self, jobs: Sequence[SeenJob], grace_seconds: float) -> set[str]:
        """Send SIGTERM to running jobs and wait for their ends; return their names."""
        running = [job for job in jobs if job.active and job.state != WAITING]
        if not running or grace_seconds <= 0:
            return set()
        names, deadline = {job.name for job in running}, self._now() + grace_seconds
        left, unheard = running, names
        while left:
            again = [job for job in left if job.name in unheard]
            # A signal before its program began is lost.
            unheard = {job.name for job in again if not self._has_begun(job.mark)}
            self._terminate(again)
            self._sleep(END_SECONDS)
            left = self._active(names)
            if self._now() >= deadline:
                break
        return names

    def _terminate(self, jobs: Sequence[SeenJob]) -> None:
        """Send SIGTERM to programs, and not to the `srun` of a gang, which would kill them."""
        gangs = {job.id for job in jobs if len(self._cluster.by_node(job.mark.gpus)) > 1}
        self._cancel(sorted(gangs), "--signal=TERM")
        self._cancel([job.id for job in jobs if job.id not in gangs], "--signal=TERM", "--full")

    def _has_begun(self, mark: LeaseMark) -> bool:
        return self._read(mark.job_id, BEGUN).strip() == mark.lease

    def _kill(self, names: Collection[str]) -> list[SeenJob]:
        """Kill what has not ended, and wait for that; return the jobs that had to be killed."""
        left = first = self._active(names)
        deadline = self._now() + KILL_SECONDS
        while left and self._now() < deadline:
            ids = [job.id for job in left]
            self._cancel(ids, "--signal=KILL", "--full")
            self._cancel(ids)
            until = min(self._now() + AGAIN_SECONDS, deadline)
            while (left := self._active(names)) and self._now() < until:
                self._sleep(END_SECONDS)
        return first

    def exit(self, found: Found) -> Exit | None:
        """See `Engine.exit`."""
        job = self._jobs.get(found.name) or self._known.get(found.name)
        if job is None:
            return None
        code, memory = job.code, self._cluster.site.memory_per_gpu * len(found.gpus)
        if job.active:
            if (part := self._read_part(job, found.rank)) is not None:
                return Exit(part, False, self._read_last_words(found), memory)
            seconds = self._cluster.site.start_seconds
            why = job.reason if job.reason not in ("None", "") else "no reason given"
            return Exit(0, False, "", 0.0, f"Slurm did not start it in {seconds:g} s: {why}")
        if words := ENDS_BY_SLURM.get(job.state, ""):
            return Exit(job.code, False, "", 0.0, words)
        if job.state == "CANCELLED":  # which Slurm does not count as an exit
            code = code or TERMINATED
        elif job.state != "COMPLETED":
            code = code or KILLED
        return Exit(code, job.state == "OUT_OF_MEMORY", self._read_last_words(found), memory)

    def _read_last_words(self, found: Found) -> str:
        log = log_file(self._cluster.folder(self.run, found.job_id))
        return read_last_words(log, found.name)

    def usage(self, found: Found) -> Usage | None:
        """See `Engine.usage`: Slurm tells it only of ended jobs."""
        return None

    def gpu_share(self, gpus: Sequence[int]) -> float:
        """See `Engine.gpu_share`: it is unknown."""
        return 0.0

    def divide(self, found: Found, *, shared: bool) -> bool:
        """See `Engine.divide`: Slurm gives no GPU to two jobs."""
        return True

    def problems(self) -> dict[int, str]:
        """See `Engine.problems`; nodes on which others hold GPUs are out of service, too."""
        self._bound_logs()
        problems, foreign = self._judge_nodes()
        if foreign:  # jobs may have begun or ended between the questions
            _, again = self._judge_nodes()
            foreign = {node: again[node] for node in foreign.keys() & again.keys()}
        names = self._cluster.names
        for node, held in foreign.items():
            of = self._cluster.nodes[node].gpus
            problems.setdefault(node, f"others hold {held} of the {of} GPUs of node {names[node]}")
        return {node: problem for node, problem in problems.items() if node not in self._left}

    def _bound_logs(self) -> None:
        """Keep the ends of long outputs; lines that come in just then are lost."""
        for job in (self._known | self._jobs).values():
            with suppress(OSError):
                bound_log(log_file(self._cluster.folder(self.run, job.mark.job_id)), job.name)

    def _judge_nodes(self) -> tuple[dict[int, str], dict[int, int]]:
        """Return the problems of nodes, and the GPUs that others hold on them."""
        own = self._count_own(self._ask())
        partition = self._cluster.site.partition
        nodes = self._answer(lambda: list_nodes(self._slurm, partition))
        later = self._count_own(self._ask())
        own = {name: max(own.get(name, 0), later.get(name, 0)) for name in own | later}
        there = {node.name: node for node in nodes}
        problems, foreign = dict[int, str](), find_foreign(nodes, own)
        for place, node in enumerate(self._cluster.nodes):
            now = there.get(node.name)
            if now is None or (now.gpu_type, now.gpus) != (node.gpu_type, node.gpus):
                problems[place] = "Slurm no longer has it, or with other GPUs"
            elif now.problem:
                # A controller that has just begun has not heard of its nodes yet.
                unheard = now.state - IN_SERVICE <= UNHEARD
                problems[place] = self._problems.get(place, "") if unheard else now.problem
        problems = {place: problem for place, problem in problems.items() if problem}
        self._problems = {**problems}
        places = {name: place for place, name in enumerate(self._cluster.names)}
        return problems, {places[name]: n for name, n in foreign.items() if name in places}

    def _count_own(self, jobs: Mapping[str, SeenJob]) -> dict[str, int]:
        """Return the GPUs of the run's active jobs, by names of nodes."""
        own: dict[str, int] = {}
        for job in jobs.values():
            for name, held in self._held(job).items() if job.active else ():
                own[name] = own.get(name, 0) + held
        return own

    def _held(self, job: SeenJob) -> dict[str, int]:
        """Return the GPUs of an active job by name of node; of an uneven gang, as Slurm says."""
        names, places = self._cluster.names, self._cluster.by_node(job.mark.gpus)
        leased = {names[place]: len(local) for place, local in places.items()}
        if len({*leased.values()}) > 1 and job.identity not in self._divided:
            with suppress(Refused, SlurmAway):
                asked = ("--details", "--oneliner", "show", "job", job.id)
                if held := read_allocated("scontrol", self._slurm.call("scontrol", *asked)):
                    self._divided[job.identity] = held
        return self._divided.get(job.identity, leased)

    def leave(self, nodes: Collection[int]) -> None:
        """See `Engine.leave`."""
        self._left |= {*nodes}
