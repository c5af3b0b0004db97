"""Regimes as text: the published table by kind of job, and schedules of single jobs.

`docs/traces.md` describes the file.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from containers.virtual.truth import GroundTruth
from predictor.errors import InputError, check_plain
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import Profile, epoch_seconds
from warehouse.wording import counted
from warehouse.workloads.fields import Row, read_rows
from warehouse.workloads.published_rules import GnsTable

COLUMNS = ("model", "initial_batch_size", "scale_factor", "schedule")
"""Required columns."""

JOB_COLUMNS = ("job_id", "profiled", "isolated_seconds")
"""Optional columns of a table of single jobs."""


@dataclass(frozen=True, slots=True)
class OwnRegimes:
    """A row on a single job.

    Attributes:
        kind: Model, initial batch size and scale factor of the job.
        targets: Target regimes of the job; the last can be open-ended.
        profiled: Regimes of the isolated run; None if they are the targets.
        isolated_seconds: Isolated run time; None to compute it from the profile.
    """

    row: Row
    kind: tuple[str, int, int]
    targets: tuple[Regime, ...]
    profiled: tuple[Regime, ...] | None
    isolated_seconds: float | None

    def truth(self, spec: JobSpec, profile: Profile) -> GroundTruth:
        """Return the ground truth of the job.

        Raises:
            InputError: The job differs from the row's, or the profile cannot run it; the error
                names the line.
        """
        self._check(spec)
        targets = self._closed("schedule", self.targets, spec)
        profiled = self._closed("profiled", self.profiled or self.targets, spec)
        if sum(regime.epochs for regime in profiled) != spec.epochs:
            problem = f"does not end with the job's {spec.epochs} epochs"
            raise self.row.refusal("profiled", problem, "give no end")
        try:
            isolated = isolated_seconds(spec, profiled, profile)
        except InputError as error:
            raise InputError(self.row.place, error.problem, error.remedy) from None
        return GroundTruth(
            job_id=spec.job_id,
            isolated_seconds=self.isolated_seconds or isolated,
            profiled=profiled,
            targets=targets,
        )

    def _check(self, spec: JobSpec) -> None:
        kind = spec.cohort
        if kind != self.kind:
            problem = (
                f"job {spec.job_id} is {_describe_kind(kind)}, not {_describe_kind(self.kind)}"
            )
            remedy = "give the job's own model, initial batch size and scale factor"
            raise InputError(self.row.place, problem, remedy)
        sizes = [regime.batch_size for regime in self.targets]
        if spec.mode is Mode.STATIC and len(sizes) > 1:
            raise self.row.refusal("schedule", "a static job never changes", "give one regime")
        if spec.mode is Mode.GNS and sizes != sorted(sizes):
            problem = "the batch size of a GNS job never shrinks"
            raise self.row.refusal("schedule", problem, "give ascending ones")

    def _closed(
        self, column: str, regimes: tuple[Regime, ...], spec: JobSpec
    ) -> tuple[Regime, ...]:
        """Return regimes whose last one, if open-ended, ends with the job."""
        *before, last = regimes
        begun = sum(int(regime.epochs) for regime in before)
        if not math.isinf(last.epochs):
            return regimes
        if begun >= spec.epochs:
            problem = f"epoch {begun} is beyond the job's {spec.epochs}"
            raise self.row.refusal(column, problem, "let the last regime begin before the job ends")
        return (*before, Regime(last.batch_size, spec.epochs - begun))


@dataclass(frozen=True)
class RegimeTable:
    """A regime table.

    Attributes:
        gns: Regimes by kind of GNS job.
        own: Regimes of single jobs, of any mode, by job id.
    """

    gns: GnsTable = field(default_factory=dict)
    own: Mapping[int, OwnRegimes] = field(default_factory=dict)

    def check_jobs(self, job_ids: Iterable[int]) -> None:
        """Refuse regimes of jobs that are not in the trace.

        Raises:
            InputError: There is such a job; the error names its line.
        """
        known = set(job_ids)
        for job_id, own in self.own.items():
            if job_id not in known:
                problem = f"the trace has no job {job_id}"
                raise own.row.refusal("job_id", problem, "give the table of this trace")


def read_regimes(path: Path) -> RegimeTable:
    """Read the epochs at which each batch size starts.

    Raises:
        InputError: A column is missing or a schedule is malformed; the error names the line.
    """
    gns: dict[tuple[str, int, int], tuple[Regime, ...]] = {}
    own: dict[int, OwnRegimes] = {}
    for row in read_rows(path, COLUMNS):
        kind = (
            row.values["model"],
            row.number("initial_batch_size", int),
            row.number("scale_factor", int),
        )
        if not row.values.get("job_id"):
            if kind in gns:
                problem = f"{_describe_kind(kind)} is there twice"
                raise row.refusal("model", problem, "leave one row out")
            gns[kind] = _kind_schedule(row, kind[1])
            continue
        job_id = row.number("job_id", int)
        if job_id in own:
            raise row.refusal("job_id", f"job {job_id} is there twice", "leave one row out")
        own[job_id] = OwnRegimes(
            row=row,
            kind=kind,
            targets=_schedule(row, "schedule"),
            profiled=_schedule(row, "profiled") if row.values.get("profiled") else None,
            isolated_seconds=row.positive("isolated_seconds", float)
            if row.values.get("isolated_seconds")
            else None,
        )
    return RegimeTable(gns, own)


def isolated_seconds(spec: JobSpec, profiled: Iterable[Regime], profile: Profile) -> float:
    """Return the run time of a job alone through the regimes of all its epochs.

    Raises:
        InputError: The profile cannot run one of the batch sizes.
    """
    return sum(
        regime.epochs * epoch_seconds(profile, spec, regime.batch_size) for regime in profiled
    )


def own_schedule(spec: JobSpec, targets: tuple[Regime, ...]) -> str:
    """Return the schedule column for targets, without their end if the job ends there, too."""
    starts = [0, *accumulate(int(regime.epochs) for regime in targets)]
    steps = [f"{start}:{regime.batch_size}" for start, regime in zip(starts, targets, strict=False)]
    return ";".join(steps if starts[-1] == spec.epochs else [*steps, str(starts[-1])])


def _kind_schedule(row: Row, initial_batch_size: int) -> tuple[Regime, ...]:
    """Parse the schedule of a kind of GNS jobs: open-ended, and the batch size only grows."""
    regimes = _schedule(row, "schedule")
    sizes = [regime.batch_size for regime in regimes]
    if not _ascends(sizes) or not math.isinf(regimes[-1].epochs):
        problem = f"{row.values['schedule']!r} does not grow until the job ends"
        raise row.refusal("schedule", problem, "give larger and larger batch sizes, and no end")
    if sizes[0] != initial_batch_size:
        problem = f"begins with batch size {sizes[0]}, not {initial_batch_size}"
        raise row.refusal("schedule", problem, "begin with the initial batch size")
    return regimes


def _schedule(row: Row, column: str) -> tuple[Regime, ...]:
    text = row.values[column]
    try:
        steps, end = text.split(";"), math.inf
        if ":" not in steps[-1]:
            end = int(check_plain(steps.pop()))
        pairs = [tuple(int(check_plain(part)) for part in step.split(":")) for step in steps]
        starts, sizes = zip(*((start, size) for start, size in pairs), strict=True)
        if starts[0] != 0 or not _ascends([*starts, end]) or min(sizes) < 1:
            raise ValueError
    except (ValueError, IndexError):
        problem = f"{text!r} is not like '0:16;31:32' or '0:16;31:32;90'"
        remedy = "give ascending epochs from 0, each with a batch size, and if need be the end"
        raise row.refusal(column, problem, remedy) from None
    lengths = [b - a for a, b in pairwise([*starts, end])]
    return tuple(Regime(size, length) for size, length in zip(sizes, lengths, strict=True))


def _ascends(numbers: Sequence[float]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _describe_kind(kind: tuple[str, int, int]) -> str:
    model, batch_size, scale_factor = kind
    return f"{model} (batch size {batch_size}) on {counted(scale_factor, 'GPU')}"
