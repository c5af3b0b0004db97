"""What a cluster's log says of its jobs, and how lines become jobs."""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

from predictor.errors import InputError
from predictor.image import LONGEST_LABEL
from warehouse.wording import counted
from warehouse.workloads.mix import MOST_SECONDS
from warehouse.workloads.moments import LATEST, Moments

PREEMPTION = "whether jobs can be preempted (they are simulated as preemptible)"
ELASTICITY = "whether jobs could run on other numbers of GPUs (they hold what they held)"
TYPES = "the type of the GPUs"
WAITS = "when jobs started"

UNKNOWN = PREEMPTION, ELASTICITY
"""What none of the logs says."""

NO_GPUS = "without GPUs"
NO_ARRIVAL = "without a submission time"
NEVER_STARTED = "never started"
STILL_RUNNING = "still running when the log was written"
NO_RUN_TIME = "without a run time"
NO_TIME = "ran for 0 s"
TOO_EARLY = "started before its submission"
ENDED_EARLY = "ended before its start"
STEPS = "steps of jobs"
NOT_ASKED = "not selected"
SEEN_BEFORE = "an id that was there before"
UNREADABLE = "unreadable"

SKIP = "leave such lines out with skip_unusable"
"""A remedy for unreadable lines."""


@dataclass(frozen=True, slots=True)
class TableJob:
    """A job as a log has it.

    Times are seconds on one clock of the log's own: in a workload the first job arrives at 0.

    Attributes:
        arrival_seconds: Submission time.
        seconds: Run time, over all attempts.
        gpus: GPUs that it holds at once; fractions are shares of a GPU.
        tenant: Its account or virtual cluster; its user, if the log has no accounts.
        model: Jobs with the same model share a model family; None if unknown.
        place: File and line, for error messages.
        key: Its id in the log.
        state: How it ended, in the words of the log.
        eligible_seconds: Time from which it could start; None if unknown, as for the next two.
        limit_seconds: Limit of its run time; 0 if unknown or none.
        attempts: Number of times that it started.
        gpu_type: Type of its GPUs; empty if unknown.
        nodes: Nodes that it ran on; 0 if unknown.
        periods: Start and end of each attempt, if it had several that the log dates.
    """

    arrival_seconds: float
    seconds: float
    gpus: float
    tenant: str = "default"
    model: str | None = None
    place: str = ""
    name: str = ""
    user: str = ""
    key: str = ""
    state: str = ""
    eligible_seconds: float | None = None
    start_seconds: float | None = None
    end_seconds: float | None = None
    limit_seconds: float = 0.0
    attempts: int = 1
    gpu_type: str = ""
    nodes: int = 0
    periods: tuple[tuple[float, float], ...] = ()

    @property
    def held(self) -> tuple[tuple[float, float], ...]:
        """Periods in which it held its GPUs, as start and end; empty if the log does not say."""
        if self.periods or self.start_seconds is None:
            return self.periods
        end = self.start_seconds + self.seconds if self.end_seconds is None else self.end_seconds
        return ((self.start_seconds, end),)


def find_most_held(jobs: Iterable[TableJob]) -> float:
    """Return the most GPUs that jobs held at once, as far as the log says when they ran."""
    changes = [
        change for job in jobs for a, b in job.held for change in ((a, job.gpus), (b, -job.gpus))
    ]
    return max(accumulate(gpus for _, gpus in sorted(changes)), default=0.0)


@dataclass(frozen=True)
class ClusterLog:
    """The jobs of a log.

    Attributes:
        source: Name of the file, and what was selected.
        jobs: In the order of the file.
        left_out: Number of lines, or of jobs, that were left out, by reason.
        unknown: What a log of this format cannot say.
    """

    source: str
    jobs: tuple[TableJob, ...]
    left_out: Mapping[str, int]
    unknown: tuple[str, ...]

    def summarize(self) -> dict[str, object]:
        """Return figures of the jobs: numbers, work, and the most GPUs that were held at once."""
        most = find_most_held(self.jobs)
        arrivals = [job.arrival_seconds for job in self.jobs]
        states = Counter(job.state.split(" ")[0] for job in self.jobs if job.state)
        return {
            "jobs": len(self.jobs),
            "users": len({job.user for job in self.jobs}),
            "tenants": len({job.tenant for job in self.jobs}),
            "days": round((max(arrivals) - min(arrivals)) / 86_400, 2),
            "gpu_hours": round(sum(job.gpus * job.seconds for job in self.jobs) / 3_600, 1),
            "largest_gpus": max(job.gpus for job in self.jobs),
            "most_gpus_held": round(most, 2) if most else None,
            "retried_jobs": sum(job.attempts > 1 for job in self.jobs),
            "states": ", ".join(f"{n:,} {state}" for state, n in states.most_common()),
        }


@dataclass(frozen=True)
class ReadOptions:
    """How a log is read.

    Attributes:
        zone: Zone of times that name none, in the IANA database; empty for UTC.
        only: Patterns by column, of which `|` separates alternatives and `*` stands for any text.
        header: Columns of a file without a header.
        skip_unreadable: Leave lines with unreadable fields out instead of refusing them.
    """

    zone: str = ""
    only: Mapping[str, str] = field(default_factory=dict)
    header: Sequence[str] = ()
    skip_unreadable: bool = False


class LogReader(Protocol):
    """A format of logs."""

    @property
    def unknown(self) -> tuple[str, ...]:
        """What a log of this format cannot say of its jobs."""
        ...

    def read(self, path: Path, options: ReadOptions, left_out: Counter[str]) -> Iterator[TableJob]:
        """Yield the jobs of a file, and count in `left_out` what is not a job, by reason.

        Raises:
            InputError: The file cannot be read, lacks a column, or a field is unreadable.
        """
        ...


class UnusableError(Exception):
    """A line is well-formed, but no job; its text is the reason."""


def read_log(reader: LogReader, path: Path, options: ReadOptions) -> ClusterLog:
    """Read the jobs of a log.

    Raises:
        InputError: The file cannot be read, or has no jobs; the error names file and line.
    """
    left_out: Counter[str] = Counter()
    jobs = tuple(reader.read(path, options, left_out))
    selected = [f"{column}={pattern}" for column, pattern in options.only.items()]
    if not jobs:
        counts = ", ".join(f"{number:,} {reason}" for reason, number in left_out.most_common())
        remedy = "give a log with at least one that ran on GPUs"
        if selected and NOT_ASKED in left_out and {*left_out} <= {NOT_ASKED, STEPS}:
            problem = f"no line of {path} has {', '.join(selected)}"
            raise InputError("only", problem, "give values that are there")
        raise InputError(str(path), f"holds no jobs to read ({counts or 'it is empty'})", remedy)
    source = [path.name, *selected]
    lines = sum(number for reason, number in left_out.items() if reason not in (NOT_ASKED, STEPS))
    if lines:
        source.append(f"{counted(lines, 'line')} left out")
    return ClusterLog(", ".join(source), jobs, dict(left_out.most_common()), reader.unknown)


@dataclass(frozen=True, slots=True)
class RowFilter:
    """A choice of rows by their fields, such as `ReadOptions.only`.

    Attributes:
        patterns: By column, in lower case.
    """

    patterns: Mapping[str, re.Pattern[str]]

    @classmethod
    def of(cls, only: Mapping[str, str]) -> "RowFilter":
        """Compile the patterns."""
        return cls({column.casefold(): _compile(pattern) for column, pattern in only.items()})

    def has(self, values: Mapping[str, str]) -> bool:
        """Return whether a row is selected, by its fields by column, in lower case."""
        return all(p.fullmatch(values.get(c, "").strip()) for c, p in self.patterns.items())


def _compile(pattern: str) -> re.Pattern[str]:
    parts = (re.escape(part.strip()) for part in pattern.split("|"))
    text = "|".join(part.replace(r"\*", ".*").replace(r"\?", ".") for part in parts)
    return re.compile(text, re.DOTALL)


@dataclass(frozen=True, slots=True)
class JobLine:
    """A line of a log, by the roles of its columns.

    Attributes:
        values: Field of each role that the log has a column for; see `clean`.
        columns: Column of each role, for error messages.
        units: Unit of numeric times in seconds, by role; 1 by default.
        selected: Whether `ReadOptions.only` selects it.
    """

    place: str
    values: Mapping[str, str]
    columns: Mapping[str, str]
    moments: Moments
    units: Mapping[str, float] = field(default_factory=dict)
    selected: bool = True

    def text(self, role: str) -> str:
        """Return a field; empty if it is missing."""
        return self.values.get(role, "")

    def label(self, role: str) -> str:
        """Return a field of free text as a label: printable, and not too long."""
        text = self.text(role)
        if not text.isprintable():
            text = "".join(c if c.isprintable() else " " for c in text).strip()
        return text[:LONGEST_LABEL]

    def number(
        self, role: str, parse: Callable[[str], float] = float, most: float = LATEST
    ) -> float:
        """Return a field as a number of 0 or more; 0 if it is missing.

        Raises:
            InputError: The field is no such number.
        """
        text = self.text(role)
        if not text:
            return 0.0
        try:
            value = parse(text)
            if "_" in text or not value <= most:
                raise ValueError
        except ValueError:
            raise self.refusal(role, f"{text!r} is not a number in range") from None
        return max(value, 0.0)

    def seconds(self, role: str) -> float | None:
        """Return a field as a number of seconds, 0 or more, whatever its unit; None if missing."""
        return self.number(role) * self.units.get(role, 1.0) if self.text(role) else None

    def job(self, seconds: float | None, gpus: float, **known: Any) -> TableJob:
        """Return the job of the line.

        Args:
            seconds: Its run time, if another column than start and end has it.
            gpus: Its GPUs.
            known: Fields that the line alone does not say.

        Raises:
            UnusableError: It is not a job that ran on GPUs.
            InputError: A field is unreadable.
        """
        if not gpus > 0:
            raise UnusableError(NO_GPUS)
        once = known.get("attempts", 1) == 1
        arrival, eligible, start, end = self._times(seconds if once else None)
        if periods := known.get("periods"):
            start, end = periods[0][0], periods[-1][1]
        if arrival is None:
            raise UnusableError(NO_ARRIVAL)
        if start is None and "start" in self.columns:
            raise UnusableError(NEVER_STARTED)
        if end is None and "end" in self.columns:
            raise UnusableError(STILL_RUNNING)
        if start is not None and end is not None and end < start:
            raise UnusableError(ENDED_EARLY)
        if seconds is None:
            if start is None or end is None:
                raise UnusableError(NO_RUN_TIME)
            seconds = end - start
        if not seconds > 0:
            raise UnusableError(NO_TIME)
        if start is not None and start < arrival:
            raise UnusableError(TOO_EARLY)
        if seconds > MOST_SECONDS:
            raise self.refusal("duration", f"a run time of {seconds:g} s is too large")
        about = {
            "tenant": self.label("tenant") or self.label("user") or "default",
            "model": self.label("model") or None,
            "name": self.label("name"),
            "user": self.label("user"),
            "key": self.label("key"),
            "state": self.label("state"),
            "gpu_type": self.label("gpu_type"),
            "nodes": int(self.number("nodes")),
        }
        times = {"eligible_seconds": eligible, "start_seconds": start, "end_seconds": end}
        return TableJob(arrival, seconds, gpus, place=self.place, **(about | times | known))

    def span(self) -> float:
        """Return the time from start to end, in seconds; 0 if one of them is missing.

        Raises:
            InputError: A field is unreadable.
        """
        return sum(end - start for start, end in self.periods())

    def at(self, role: str) -> float:
        """Return a time in seconds since 1970; of an ambiguous one, the first reading.

        Raises:
            UnusableError: It is missing.
            InputError: The field is unreadable.
        """
        (found,) = self.moments.place([self._moment(role)], None)
        if found is None:
            raise UnusableError(NEVER_STARTED if role == "start" else STILL_RUNNING)
        return found

    def periods(self) -> tuple[tuple[float, float], ...]:
        """Return start and end, if both are there and in this order; else nothing.

        Raises:
            InputError: A field is unreadable.
        """
        start, end = self.moments.place([self._moment("start"), self._moment("end")], None)
        return ((start, end),) if start is not None and end is not None and start <= end else ()

    def _times(self, run_seconds: float | None) -> list[float | None]:
        roles = "arrival", "eligible", "start", "end"
        return self.moments.place([self._moment(role) for role in roles], run_seconds)

    def _moment(self, role: str) -> float | datetime | None:
        text = self.text(role)
        if not text:
            return None
        try:
            return self.moments.parse(text, self.units.get(role, 1.0))
        except ValueError:
            problem = (
                f"{text!r} is neither a number of seconds, 0 or more, nor an ISO date and time"
            )
            raise self.refusal(role, problem) from None

    def refusal(self, role: str, problem: str) -> InputError:
        """Return the error that names a field."""
        place = f"{self.place}, {self.columns.get(role, role)}"
        return InputError(place, problem, f"correct the field, or {SKIP}")
