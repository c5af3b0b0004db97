"""Measured applications and workloads of their jobs, in the formats that Pollux publishes.

`docs/traces.md` describes the folder of measurements and the workloads.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from itertools import pairwise, product
from pathlib import Path
from typing import TypeVar

from containers.virtual.truth import GroundTruth
from predictor.allocation import Demand
from predictor.application import Application, EpochNoise, StepTime
from predictor.errors import InputError, check_plain, meant
from predictor.job import JobSpec, Mode, Regime
from predictor.throughput import UNTYPED, Profile
from tasks.sources import Workload, sort_by_arrival
from warehouse.workloads.fields import Row, read_rows

Measured = TypeVar("Measured", StepTime, EpochNoise)

LIMITS = ("init_batch_size", "max_batch_size", "min_local_bsz", "max_local_bsz", "max_epochs")
TIMES = ("local_bsz", "step_time", "sync_time")

FILES = {
    "applications.csv": ("application", *LIMITS),
    "placements.csv": ("application", "placement", *TIMES),
    "scalability.csv": ("application", "num_nodes", "num_replicas", *TIMES),
    "validation.csv": (
        *("application", "batch_size", "epoch", "progress", "iteration", "metric"),
        *("grad_sqr", "grad_var"),
    ),
}
"""Files of a folder of applications, with the columns that are read."""

SPEEDS = "gpu_types.csv"
"""File of a folder for clusters of several GPU types: speeds of applications relative to those of
the type that was measured."""

JOB_COLUMNS = ("name", "time", "application", "num_replicas", "batch_size")
"""Columns of a workload."""

SMALLEST = 1e-300
"""Smallest variance of a gradient, a numerical bound: it divides."""

ON_ONE_GPU = {"ncf"}
"""Applications whose jobs never train on several GPUs, as in the published simulator."""


def read_applications(folder: Path, gpu_types: Collection[str] = ()) -> dict[str, Application]:
    """Read a folder of measured applications, by name.

    Args:
        folder: The folder, with `FILES`.
        gpu_types: The GPU types of the cluster, of which the first counts as measured.

    Raises:
        InputError: A file cannot be read or a field is wrong.
    """
    gpu_type = next(iter(gpu_types), UNTYPED)
    steps = _read_of(folder, "placements.csv", _parse_placement)
    for name, rows in _read_of(folder, "scalability.csv", _parse_counts).items():
        steps[name] += rows
    training = _read_of(folder, "validation.csv", _parse_epoch)
    found: dict[str, Application] = {}
    for row in _rows(folder, "applications.csv"):
        name = row.name("application")
        if name in found:
            raise row.refusal("application", f"{name} is there twice", "leave one out")
        size, most, least_local, most_local, epochs = (row.positive(c, int) for c in LIMITS)
        epochs_seen = sorted(training[name], key=lambda seen: (seen.batch_size, seen.epoch))
        _check_training(row, epochs_seen, epochs)
        if not any(step.placement for step in steps[name]):
            remedy = f"measure it in {folder / 'placements.csv'}"
            raise row.refusal("application", f"{name} has no measured placement", remedy)
        if least_local > most_local or size > most:
            problem = f"the limits of {name} are below their minimum"
            raise row.refusal("application", problem, "mend the line")
        found[name] = Application(
            name=name,
            gpu_type=gpu_type,
            batch_size=size,
            max_batch_size=most,
            least_local=least_local,
            most_local=most_local,
            epochs=epochs,
            most_gpus=int(name in ON_ONE_GPU),
            steps=tuple(steps[name]),
            training=tuple(epochs_seen),
        )
    return found


def read_application_profile(folder: Path, gpu_types: Collection[str] = ()) -> Profile:
    """Read a folder of measured applications as a profile.

    Args:
        folder: The folder, with `FILES`, and `SPEEDS` for several GPU types.
        gpu_types: The GPU types of the cluster; without `SPEEDS` it is the measured one.

    Raises:
        InputError: A file cannot be read, a field is wrong, or a speed is missing.
    """
    applications, rates = read_applications(folder, gpu_types), {}
    if len(gpu_types) > 1 or ((folder / SPEEDS).is_file() and not {*gpu_types} <= {UNTYPED}):
        speeds = _read_speeds(folder, applications, gpu_types)
        for name, app in applications.items():
            app = applications[name] = app.at_speed(speeds[name, app.gpu_type])
            step = app.step_seconds((1,), app.batch_size)
            if step == math.inf:
                problem = f"{name} was not measured at batch size {app.batch_size} on one GPU"
                raise InputError(str(folder), problem, "add the measurement")
            for kind in gpu_types:
                speed = speeds[name, kind] / speeds[name, app.gpu_type]
                rates[name, app.batch_size, kind, 1] = speed / step
    return Profile(rates, source=str(folder), applications=applications)


def _read_speeds(
    folder: Path, names: Collection[str], gpu_types: Collection[str]
) -> dict[tuple[str, str], float]:
    """Return the speeds of applications by GPU type, over those on the measured one."""
    path, columns = folder / SPEEDS, ("application", "gpu_type", "speed")
    if not path.is_file():
        problem = f"are measured on one GPU type, and the cluster has {', '.join(gpu_types)}"
        remedy = f"add {SPEEDS} to the folder, with {', '.join(columns)}"
        raise InputError("applications", problem, remedy)
    speeds = {
        (row.name("application"), row.name("gpu_type")): row.positive("speed", float)
        for row in read_rows(path, columns)
    }
    for name, kind in product(names, gpu_types):
        if (name, kind) not in speeds:
            raise InputError(str(path), f"has no speed of {name} on {kind}", "add a line")
    return speeds


def _rows(folder: Path, file: str) -> list[Row]:
    return list(read_rows(folder / file, FILES[file]))


def _read_of(
    folder: Path, file: str, parse: Callable[[Row], Measured]
) -> defaultdict[str, list[Measured]]:
    found: defaultdict[str, list[Measured]] = defaultdict(list)
    for row in _rows(folder, file):
        found[row.name("application")].append(parse(row))
    return found


def _check_training(row: Row, training: list[EpochNoise], epochs: int) -> None:
    """Refuse an application unless each run has every epoch, with progress from epoch to epoch."""
    name, runs = row.name("application"), defaultdict[int, list[EpochNoise]](list)
    for seen in training:
        runs[seen.batch_size].append(seen)
    if not runs:
        raise row.refusal("application", f"{name} has no measured epochs", "add validation.csv's")
    for size, run in runs.items():
        if [seen.epoch for seen in run[:epochs]] != list(range(epochs)):
            problem = f"{name} at batch size {size} lacks epochs up to {epochs}"
            raise row.refusal("max_epochs", problem, "give the epochs that validation.csv has")
        ends = [0.0, *(seen.progress for seen in run[:epochs])]
        if any(after <= before for before, after in pairwise(ends)):
            problem = f"{name} at batch size {size} has an epoch without progress"
            raise row.refusal("application", problem, "mend validation.csv")


def _parse_placement(row: Row) -> StepTime:
    digits = row.values["placement"].strip()
    if not digits.isdecimal() or not digits.isascii() or "0" in digits:
        problem = f"{digits!r} is not a digit of 1 to 9 for each node"
        raise row.refusal("placement", problem, "mend the field")
    turns = {digits[turn:] + digits[:turn] for turn in range(len(digits))}
    return StepTime(min(turns), len(digits), sum(map(int, digits)), *_parse_times(row))


def _parse_counts(row: Row) -> StepTime:
    nodes, gpus = row.positive("num_nodes", int), row.positive("num_replicas", int)
    return StepTime("", nodes, gpus, *_parse_times(row))


def _parse_times(row: Row) -> tuple[int, float, float]:
    step, sync = row.positive("step_time", float), row.number("sync_time", float)
    if not 0.0 <= sync < step:
        raise row.refusal("sync_time", f"{sync} is not a part of {step}", "mend the field")
    return row.positive("local_bsz", int), step, sync


def _parse_epoch(row: Row) -> EpochNoise:
    return EpochNoise(
        batch_size=row.positive("batch_size", int),
        epoch=row.number("epoch", int),
        progress=row.positive("progress", float),
        iterations=row.positive("iteration", int),
        metric=row.number("metric", float),
        sqr=_parse_noise(row, "grad_sqr", 0.0),
        var=_parse_noise(row, "grad_var", SMALLEST),
    )


def _parse_noise(row: Row, column: str, least: float) -> float:
    """Return a number of any size, since gradients are not normalised."""
    try:
        value = float(check_plain(row.values[column]))
    except ValueError:
        value = -1.0
    if not least <= value < math.inf:
        problem = f"{row.values[column]!r} is not a {'positive' if least else 'finite'} number"
        raise row.refusal(column, problem, "mend the field")
    return value


def read_application_jobs(trace: Path, folder: Path, gpu_types: Collection[str] = ()) -> Workload:
    """Read a workload of jobs of measured applications.

    Policies that choose no sizes give a job its tuned number of GPUs; others give it from one to as
    many as the batch size allows. It trains at its tuned batch size unless the policy adapts it.

    Raises:
        InputError: A file cannot be read or a field is wrong; the error names file and line.
    """
    profile = read_application_profile(folder, gpu_types)
    applications = profile.applications
    jobs, places = [], {}
    for job_id, row in enumerate(read_rows(trace, JOB_COLUMNS)):
        spec = _parse_job(row, job_id, applications)
        places[job_id] = row.place
        jobs.append((spec, _true(row, spec, profile)))
    if not jobs:
        raise InputError(str(trace), "holds no jobs", "give a workload with at least one line")
    specs, truths = sort_by_arrival(jobs)
    return Workload(source=trace.name, specs=specs, truths=truths, profile=profile, places=places)


def _parse_job(row: Row, job_id: int, applications: Mapping[str, Application]) -> JobSpec:
    name = row.name("application")
    app = applications.get(name)
    if app is None:
        problem = f"{name!r} is no measured application"
        raise row.refusal("application", problem, meant(name, [*applications]))
    size, gpus = row.positive("batch_size", int), row.positive("num_replicas", int)
    if not app.batch_size <= size <= app.max_batch_size:
        problem = f"{size} is not {app.batch_size} to {app.max_batch_size}, as {name} was measured"
        raise row.refusal("batch_size", problem, "give one in this range")
    if gpus > app.limit_gpus(size):
        problem = f"{gpus} GPUs are more than {name} can use at batch size {size}"
        raise row.refusal("num_replicas", problem, f"give at most {app.limit_gpus(size)}")
    try:
        return JobSpec(
            job_id=job_id,
            model=name,
            batch_size=size,
            max_batch_size=app.max_batch_size,
            demand=Demand(1, app.limit_gpus(app.max_batch_size), tuned=gpus),
            mode=Mode.GOODPUT,
            epochs=app.epochs,
            samples_per_epoch=count_samples(app),
            arrival_seconds=row.number("time", float),
            name=row.name("name"),
        )
    except InputError as error:
        field = {"arrival": "time"}.get(error.place.split(", ")[-1], "name")
        raise row.refusal(field, error.problem, error.remedy) from None


def count_samples(app: Application) -> int:
    """Return the samples of an epoch: those of its progress at the initial batch size."""
    return round(app.progress_after(app.epochs) / app.epochs * app.batch_size)


def check_application_job(spec: JobSpec, app: Application) -> None:
    """Refuse a job whose declaration is not of its measured application.

    Raises:
        InputError: A field is out of its range; the place is the field in a job's file.
    """
    name, sizes = app.name, f"{app.batch_size} to {app.max_batch_size}, as {app.name} was measured"
    if spec.mode not in (Mode.STATIC, Mode.GOODPUT):
        problem = f"{spec.mode} is not a mode of the measured application {name}"
        raise InputError("mode", problem, f"give {Mode.STATIC} or {Mode.GOODPUT}")
    if spec.epochs != app.epochs:
        raise InputError("epochs", f"{name} was measured for {app.epochs}", f"give {app.epochs}")
    for field in ("batch_size", "max_batch_size"):
        if not app.batch_size <= getattr(spec, field) <= app.max_batch_size:
            raise InputError(field, f"{getattr(spec, field)} is not {sizes}", "give another")
    largest = spec.max_batch_size if spec.mode is Mode.GOODPUT else spec.batch_size
    for field, gpus, size in (
        ("scale_factor", spec.demand.size, spec.batch_size),
        ("max_gpus", spec.demand.most, largest),
    ):
        if gpus > (most := app.limit_gpus(size)):
            problem = f"{gpus} GPUs are more than {name} can use at batch size {size}"
            raise InputError(field, problem, f"give at most {most}")


def _true(row: Row, spec: JobSpec, profile: Profile) -> GroundTruth:
    try:
        return find_truth(spec, profile)
    except InputError as error:
        raise row.refusal("num_replicas", error.problem, error.remedy) from None


def find_truth(spec: JobSpec, profile: Profile) -> GroundTruth:
    """Return the truth of a job: its isolated run time is that of its gang, packed.

    Raises:
        InputError: The gang was not measured.
    """
    app, there = profile.applications[spec.model], profile.reference(spec)
    if not profile.can_run(spec, spec.batch_size, there):
        problem = (
            f"{spec.model} was not measured on {there.gpus} GPUs at batch size {spec.batch_size}"
        )
        raise InputError("scale_factor", problem, "give a measured number")
    steps = sum(app.steps_in(epoch, spec.batch_size, there.gpus) for epoch in range(app.epochs))
    held = (Regime(spec.batch_size, spec.epochs),)
    seconds = steps / profile.rate(spec, spec.batch_size, there)
    return GroundTruth(spec.job_id, isolated_seconds=seconds, profiled=held, targets=held)
