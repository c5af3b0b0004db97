"""Regimes as text: the published table by kind of job, and the schedules of single jobs.

`docs/traces.md` describes the file.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from pathlib import Path

from containers.virtual import GroundTruth
from predictor.errors import InputError
from predictor.job import JobSpec, Mode, Regime
from predictor.profile import Profile
from warehouse.fields import Row, read_rows
from warehouse.published import GnsTable

COLUMNS = ("model", "initial_batch_size", "scale_factor", "schedule")
"""What every table has."""

JOB_COLUMN, ISOLATED_COLUMN = "job_id", "isolated_seconds"
"""What a table of single jobs has besides."""


@dataclass(frozen=True, slots=True)
class OwnRegimes:
    """The regimes of one job.

    Attributes:
        row: Where they stand.
        kind: Model, initial batch size and scale factor of the job.
        regimes: They; the last may be open-ended.
        isolated_seconds: Isolated run time; None where it follows from the regimes.
    """

    row: Row
    kind: tuple[str, int, int]
    regimes: tuple[Regime, ...]
    isolated_seconds: float | None

    def truth(self, spec: JobSpec, total_steps: int, profile: Profile) -> GroundTruth:
        """What the job will really do.

        Args:
            spec: The job as declared.
            total_steps: Its training steps at the initial batch size.
            profile: Throughputs.

        Raises:
            InputError: The regimes are not such a job's; names their line.
        """
        self._check(spec)
        begun = sum(regime.epochs for regime in self.regimes[:-1])
        last = self.regimes[-1]
        targets = self.regimes
        if math.isinf(last.epochs):
            targets = (*targets[:-1], Regime(last.batch_size, spec.epochs - int(begun)))
        try:
            isolated = isolated_seconds(spec, targets, profile)
        except InputError as error:
            raise InputError(self.row.place, error.problem, error.remedy) from None
        return GroundTruth(
            job_id=spec.job_id,
            total_steps=total_steps,
            isolated_seconds=self.isolated_seconds or isolated,
            targets=targets,
        )

    def _check(self, spec: JobSpec) -> None:
        kind = (spec.model, spec.batch_size, spec.scale_factor)
        if kind != self.kind:
            raise InputError(
                self.row.place,
                f"job {spec.job_id} is {_told(kind)}, not {_told(self.kind)}",
                "give the job's own model, initial batch size and scale factor",
            )
        sizes = [regime.batch_size for regime in self.regimes]
        if spec.mode is Mode.STATIC and len(sizes) > 1:
            raise self.row.refusal("schedule", "a static job never changes", "give one regime")
        if spec.mode is Mode.GNS and sizes != sorted(sizes):
            raise self.row.refusal(
                "schedule", "the batch size of a GNS job never shrinks", "give ascending ones"
            )
        begun = sum(regime.epochs for regime in self.regimes[:-1])
        if math.isinf(self.regimes[-1].epochs) and begun >= spec.epochs:
            raise self.row.refusal(
                "schedule",
                f"epoch {begun:g} is beyond the job's {spec.epochs}",
                "let the last regime begin before the job ends",
            )


@dataclass(frozen=True)
class RegimeTable:
    """What a regime table says.

    Attributes:
        gns: Regimes by kind of GNS job.
        own: Regimes of single jobs, of any mode, by job id.
    """

    gns: GnsTable = field(default_factory=dict)
    own: Mapping[int, OwnRegimes] = field(default_factory=dict)

    def check_jobs(self, job_ids: Iterable[int]) -> None:
        """Refuse regimes of a job that is not there.

        Raises:
            InputError: There are some; names their line.
        """
        known = set(job_ids)
        for job_id, own in self.own.items():
            if job_id not in known:
                raise own.row.refusal(
                    JOB_COLUMN, f"the trace has no job {job_id}", "give the table of this trace"
                )


def read_regimes(path: Path) -> RegimeTable:
    """Read the epochs from which each batch size holds.

    Raises:
        InputError: A column is missing or a schedule is malformed; names the line.
    """
    gns: dict[tuple[str, int, int], tuple[Regime, ...]] = {}
    own: dict[int, OwnRegimes] = {}
    for row in read_rows(path, COLUMNS):
        kind = (
            row.values["model"],
            row.number("initial_batch_size", int),
            row.number("scale_factor", int),
        )
        if not row.values.get(JOB_COLUMN, ""):
            gns[kind] = _schedule(row)
            continue
        job_id = row.number(JOB_COLUMN, int)
        if job_id in own:
            raise row.refusal(JOB_COLUMN, f"job {job_id} is there twice", "leave one row out")
        given = row.values.get(ISOLATED_COLUMN, "")
        isolated = row.positive(ISOLATED_COLUMN, float) if given else None
        own[job_id] = OwnRegimes(row, kind, _own_schedule(row), isolated)
    return RegimeTable(gns, own)


def isolated_seconds(spec: JobSpec, targets: tuple[Regime, ...], profile: Profile) -> float:
    """Run time of a job alone that follows its targets; the last one holds on.

    Raises:
        InputError: The profile cannot run one of the batch sizes.
    """
    starts = accumulate((regime.epochs for regime in targets[:-1]), initial=0)
    ends = [*(min(start, spec.epochs) for start in starts), spec.epochs]
    return sum(
        (end - start) * profile.epoch_seconds(spec, regime.batch_size)
        for regime, (start, end) in zip(targets, pairwise(ends), strict=True)
    )


def own_schedule(spec: JobSpec, targets: tuple[Regime, ...]) -> str:
    """The schedule column for targets; its last epoch is left out where the job ends there."""
    starts = [0, *accumulate(int(regime.epochs) for regime in targets)]
    steps = [f"{start}:{regime.batch_size}" for start, regime in zip(starts, targets, strict=False)]
    return ";".join(steps if starts[-1] == spec.epochs else [*steps, str(starts[-1])])


def _schedule(row: Row) -> tuple[Regime, ...]:
    text = row.values["schedule"]
    try:
        starts, sizes = _parse(text.split(";"))
        if not _ascends(sizes):
            raise ValueError
    except ValueError:
        raise row.refusal(
            "schedule",
            f"{text!r} is not like '0:16;31:32'",
            "give ascending epochs from 0, each with a larger batch size",
        ) from None
    return _regimes(starts, sizes, math.inf)


def _own_schedule(row: Row) -> tuple[Regime, ...]:
    text = row.values["schedule"]
    try:
        steps, end = text.split(";"), math.inf
        if ":" not in steps[-1]:
            end = int(steps.pop())
        starts, sizes = _parse(steps)
        if end <= starts[-1] or min(sizes) < 1:
            raise ValueError
    except (ValueError, IndexError):
        raise row.refusal(
            "schedule",
            f"{text!r} is not like '0:16;31:32' or '0:16;31:32;90'",
            "give ascending epochs from 0, each with a batch size, and if need be the end",
        ) from None
    return _regimes(starts, sizes, end)


def _parse(steps: list[str]) -> tuple[list[int], list[int]]:
    pairs = [tuple(map(int, step.split(":"))) for step in steps]
    starts = [start for start, _ in pairs]
    if starts[0] != 0 or not _ascends(starts):
        raise ValueError
    return starts, [size for _, size in pairs]


def _ascends(numbers: list[int]) -> bool:
    return all(a < b for a, b in pairwise(numbers))


def _regimes(starts: list[int], sizes: list[int], end: float) -> tuple[Regime, ...]:
    lengths = [b - a for a, b in pairwise([*starts, end])]
    return tuple(Regime(size, length) for size, length in zip(sizes, lengths, strict=True))


def _told(kind: tuple[str, int, int]) -> str:
    model, batch_size, scale_factor = kind
    return f"{model} (batch size {batch_size}) on {scale_factor} GPUs"
