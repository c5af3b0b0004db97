"""Jobs as TOML files: the declaration, and the ground truth for a simulation."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from containers.virtual.truth import GroundTruth
from flows.runs.toml_file import read_toml, validate_fields
from predictor.allocation import Demand
from predictor.application import Application
from predictor.errors import InputError, meant
from predictor.image import CODE, NAME
from predictor.job import JobKind, JobSpec, Mode, Regime, find_named, make_timed_job
from predictor.options import MOST_RETRIES, NO_ARRAY, JobOptions, Task, parse_tasks
from predictor.throughput import Profile
from tasks.sources import Workload, sort_by_arrival
from warehouse.workloads.applications import (
    check_application_job,
    count_samples,
    find_truth,
)
from warehouse.workloads.kinds import MOST_JOBS
from warehouse.workloads.regimes import isolated_seconds

Count = Annotated[int, Field(ge=1, le=10**9)]
Pair = Annotated[list[Count], Field(min_length=2, max_length=2)]
Seconds = Annotated[float, Field(ge=0, le=10**9, allow_inf_nan=False)]

TRAINED = ("model", "batch_size", "epochs")
"""Fields that adaptive jobs must have, and other jobs must not have."""

ADAPTED = ("max_batch_size", "mode", "samples_per_epoch", "regimes", "min_gpus", "max_gpus")
"""Fields that only adaptive jobs may have."""


class JobFile(BaseModel):
    """The fields of a job's file (docs/jobs.md)."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    kind: Annotated[
        JobKind,
        Field(
            strict=False,
            description="adaptive: reports its progress; checkpointing: may be preempted; "
            "opaque: runs to its end.",
        ),
    ] = JobKind.ADAPTIVE
    name: Annotated[
        str,
        Field(description="Jobs with the same name, tenant and image are expected to last alike."),
    ] = ""
    image: Annotated[
        str, Field(description="Image of its containers; by default that of its node.")
    ] = ""
    command: Annotated[
        list[str], Field(description="Command with arguments; by default that of the image.")
    ] = Field(default_factory=list)
    environment: Annotated[
        dict[str, str], Field(description="Environment variables, NAME=VALUE.")
    ] = Field(default_factory=dict)
    code: Annotated[
        str,
        Field(
            max_length=1100,
            description="Folder, .tar.gz or git+URL@REVISION that it finds in /code.",
        ),
    ] = ""
    max_seconds: Annotated[
        Seconds, Field(description="Longest time for which it may hold GPUs; 0: unlimited.")
    ] = 0.0
    scale_factor: Annotated[
        Count | None,
        Field(
            title="GPUs",
            description="GPUs that it holds at once, unless the policy chooses its size.",
        ),
    ] = None
    min_gpus: Annotated[
        Count | None,
        Field(title="min GPUs", description="Fewest GPUs of an elastic job."),
    ] = None
    max_gpus: Annotated[
        Count | None,
        Field(title="max GPUs", description="Most GPUs of an elastic job."),
    ] = None
    tenant: Annotated[str, Field(min_length=1, description="Tenant that the job belongs to.")] = (
        "default"
    )
    priority: Annotated[
        float,
        Field(
            ge=1e-6,
            le=1e6,
            allow_inf_nan=False,
            description="Weight among the jobs of its tenant, which share their budgets.",
        ),
    ] = 1.0
    budget: Annotated[
        float,
        Field(gt=0, allow_inf_nan=False, description="Budget in the market, relative to others."),
    ] = 1.0
    consolidate: Annotated[bool, Field(description="Run it on as few nodes as possible.")] = False
    opportunistic: Annotated[
        bool, Field(description="Run it only on GPUs that other jobs leave idle.")
    ] = False
    model: Annotated[
        str | None, Field(min_length=1, description="Model, as named in the throughput table.")
    ] = None
    batch_size: Annotated[Count | None, Field(description="Batch size of the first epoch.")] = None
    epochs: Annotated[Count | None, Field(description="Epochs to train.")] = None
    max_batch_size: Annotated[
        Count | None, Field(description="Largest batch size; by default that of its regimes.")
    ] = None
    mode: Annotated[Mode, Field(strict=False, description="How the job adapts its batch size.")] = (
        Mode.STATIC
    )
    samples_per_epoch: Annotated[
        Count | None,
        Field(description="Size of the data set; by default that of other jobs of its model."),
    ] = None
    regimes: Annotated[
        list[Pair] | None,
        Field(min_length=1, description="Batch size and epochs of each regime, for simulation."),
    ] = None
    seconds: Annotated[
        float | None,
        Field(
            gt=0,
            le=10**9,
            allow_inf_nan=False,
            description="Run time of a job that is not adaptive, for simulation; by default its "
            "max_seconds.",
        ),
    ] = None

    after: Annotated[
        list[str],
        Field(
            max_length=100,
            description="Names or ids of jobs that must succeed before this one may start.",
        ),
    ] = Field(default_factory=list)
    array: Annotated[
        str,
        Field(
            max_length=1000,
            description="Task indices of an array, such as 0-31 or 1,3,5-7; add %4 to run at most "
            "four tasks at a time.",
        ),
    ] = ""
    retries: Annotated[
        int | None,
        Field(ge=0, le=MOST_RETRIES, description="How often a crashed job is launched again."),
    ] = None
    deadline_seconds: Annotated[
        Seconds,
        Field(
            title="deadline",
            description="Seconds after its arrival by which it should end; most policies only "
            "report it.",
        ),
    ] = 0.0
    secrets: Annotated[
        list[str],
        Field(description="Secrets of its tenant to mount as files in /run/secrets."),
    ] = Field(default_factory=list)
    network: Annotated[
        str, Field(description="Network of the cluster to join; by default none.")
    ] = ""
    volumes: Annotated[
        list[str], Field(description="Volumes of the cluster to mount in /volumes.")
    ] = Field(default_factory=list)

    @property
    def timed(self) -> bool:
        """See `JobSpec.timed`."""
        return self.kind is not JobKind.ADAPTIVE

    @property
    def truth(self) -> tuple[Regime, ...]:
        """The true regimes of the job."""
        pairs = self.regimes or [[self.batch_size or 1, self.epochs or 1]]
        return tuple(Regime(size, epochs) for size, epochs in pairs)

    @property
    def size(self) -> int:
        """Number of GPUs that it gets from a policy that chooses no sizes."""
        return self.scale_factor or self.min_gpus or 1

    @property
    def demand(self) -> Demand:
        """The numbers of GPUs that it can hold."""
        size = self.size
        least, most = self.min_gpus or size, self.max_gpus or size
        return Demand(least, most, tuned=size) if least < most else Demand.gang(size)

    @model_validator(mode="after")
    def _check(self) -> "JobFile":
        problem = self._timed_problem() if self.timed else self._adaptive_problem()
        if problem:
            raise ValueError(problem)
        return self

    def _timed_problem(self) -> str:
        unfit = [name for name in (*TRAINED, *ADAPTED) if name in self.model_fields_set]
        if unfit:
            return f"{unfit[0]}: is of adaptive jobs only; leave it out"
        if not self.max_seconds:
            return "max_seconds: is missing; give the seconds for which it may hold GPUs"
        if not self.image and not self.command:
            return "image: is missing; give the image of its containers, or on a Slurm a command"
        return ""

    def _adaptive_problem(self) -> str:
        missing = [name for name in TRAINED if getattr(self, name) is None]
        if self.image and missing == [*TRAINED] and "kind" not in self.model_fields_set:
            return "kind: is missing; give checkpointing if it may be preempted, opaque if not"
        if missing:
            return f"{missing[0]}: is missing; add it"
        if self.seconds is not None:
            return "seconds: is of jobs that are not adaptive; leave it out"
        if self.min_gpus and self.min_gpus > self.size:
            return f"min_gpus: {self.min_gpus} is above its {self.size} GPUs; lower it"
        if self.max_gpus and self.max_gpus < self.size:
            return f"max_gpus: {self.max_gpus} is below its {self.size} GPUs; raise it"
        sizes = [regime.batch_size for regime in self.truth]
        if sizes[0] != self.batch_size:
            return f"regimes begin with batch size {sizes[0]}; begin with batch_size"
        if sum(regime.epochs for regime in self.truth) != self.epochs:
            return f"regimes do not add up to {self.epochs} epochs; correct their epochs"
        if self.max_batch_size is not None and max(sizes) > self.max_batch_size:
            if self.regimes is None:
                below = f"is below the batch size, {max(sizes)}"
                return f"max_batch_size: {below}; raise it, or lower batch_size"
            return "a regime is above max_batch_size; raise max_batch_size"
        if self.mode is Mode.STATIC and len(sizes) > 1:
            return "a static job never changes its batch size; give another mode"
        if self.mode is Mode.GNS and sizes != sorted(sizes):
            return "the batch size of a GNS job never shrinks; give ascending batch sizes"
        return ""

    def specs(
        self,
        first_id: int,
        arrival_seconds: float,
        profile: Profile,
        samples: Mapping[str, int],
        after: tuple[int, ...] = (),
    ) -> tuple[JobSpec, ...]:
        """Return the declared job, or the tasks of its array, with consecutive ids; see `spec`."""
        if self.model is not None:
            profile.check_model(self.model)
        app = profile.applications.get(self.model or "")
        if app is not None:
            samples = {app.name: count_samples(app)}
        elif self.mode is Mode.GOODPUT:
            problem = f"{self.mode} is not possible outside measured applications"
            raise InputError("mode", problem, "give another")
        tasks = parse_tasks(self.array) if self.array else (NO_ARRAY,)
        specs = tuple(
            self.spec(first_id + task.place, arrival_seconds, samples, after, task)
            for task in tasks
        )
        return specs if app is None else tuple(self._fitted(spec, app) for spec in specs)

    def _fitted(self, spec: JobSpec, app: Application) -> JobSpec:
        """Return a job of a measured application, checked."""
        for name in ("regimes", "samples_per_epoch"):
            if name in self.model_fields_set:
                raise InputError(name, f"{app.name} was measured", "leave it out")
        if spec.mode is Mode.GOODPUT and self.max_batch_size is None:
            spec = replace(spec, max_batch_size=app.max_batch_size)
        check_application_job(spec, app)
        return spec

    def spec(
        self,
        job_id: int,
        arrival_seconds: float,
        samples: Mapping[str, int],
        after: tuple[int, ...] = (),
        task: Task = NO_ARRAY,
    ) -> JobSpec:
        """Return the job as declared.

        If the file lacks samples per epoch, `samples` has them by model; `after` are the ids of the
        jobs that its `after` names.

        Raises:
            InputError: A field is invalid.
        """
        if self.name and not NAME.fullmatch(self.name):
            remedy = "use letters, digits, '.', '_' and '-', at most 100"
            raise InputError("name", f"{self.name!r} is not a name", remedy)
        variables = self.environment | ({CODE: self.code} if self.code else {})
        if self.code and CODE in self.environment:
            raise InputError("environment", f"{CODE} is set by code", "leave it out")
        shared: dict[str, Any] = {
            "name": self.name,
            "image": self.image,
            "command": tuple(self.command),
            "environment": tuple(f"{name}={value}" for name, value in variables.items()),
            "tenant": self.tenant,
            "budget": self.budget,
            "consolidate": self.consolidate,
            "opportunistic": self.opportunistic,
            "options": JobOptions(
                after=after,
                task=task,
                retries=-1 if self.retries is None else self.retries,
                deadline_seconds=self.deadline_seconds,
                secrets=tuple(self.secrets),
                network=self.network,
                volumes=tuple(self.volumes),
                priority=self.priority,
            ),
        }
        if self.timed:
            return make_timed_job(
                job_id, self.kind, self.demand, self.max_seconds, arrival_seconds, **shared
            )
        assert self.model is not None
        assert self.batch_size is not None
        assert self.epochs is not None
        samples_per_epoch = self.samples_per_epoch or samples.get(self.model)
        if samples_per_epoch is None:
            problem = f"is missing, and the data set of the model {self.model!r} is not known"
            known = f"; for the model, {meant(self.model, sorted(samples))}" if samples else ""
            raise InputError("samples_per_epoch", problem, f"add it{known}")
        largest = max(regime.batch_size for regime in self.truth)
        return JobSpec(
            job_id=job_id,
            model=self.model,
            batch_size=self.batch_size,
            max_batch_size=self.max_batch_size or largest,
            demand=self.demand,
            mode=self.mode,
            epochs=self.epochs,
            samples_per_epoch=samples_per_epoch,
            arrival_seconds=arrival_seconds,
            max_seconds=self.max_seconds,
            **shared,
        )

    def true(self, spec: JobSpec, profile: Profile) -> GroundTruth:
        """Return the job's ground truth for a simulation.

        Raises:
            InputError: The profile cannot run it.
        """
        if self.timed:
            whole = (Regime(1, 1),)
            return GroundTruth(spec.job_id, self.seconds or spec.max_seconds, whole, whole)
        if spec.model in profile.applications:
            return find_truth(spec, profile)
        seconds = isolated_seconds(spec, self.truth, profile)
        return GroundTruth(spec.job_id, seconds, self.truth, self.truth)


class ArrivingJob(JobFile):
    """A job of a file of several."""

    arrival_seconds: Annotated[
        Seconds, Field(description="Its arrival, from the start of the run.")
    ] = 0.0


class JobsFile(BaseModel):
    """A file of several jobs, in its list `jobs`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    jobs: list[ArrivingJob] = Field(min_length=1, max_length=MOST_JOBS)


def read_job(
    path: Path,
    job_id: int,
    arrival_seconds: float,
    workload: Workload,
    without: Collection[int] = (),
) -> tuple[JobSpec, GroundTruth]:
    """Read a job and its ground truth.

    Args:
        path: The file.
        job_id: The job's id.
        arrival_seconds: Its arrival on the run's clock, in seconds.
        workload: The run's workload; it has the profile, and default samples per epoch by model.
        without: Ids of jobs removed from the workload.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    fields = read_toml(path, "a job's TOML file")
    job = validate_fields(path, JobFile, fields, "a job")
    like = {spec.model: spec.samples_per_epoch for spec in workload.specs}
    if job.array:
        raise InputError(
            f"{path}: array", "applies only to jobs of a service", "leave it out, or submit the job"
        )
    known = [spec for spec in workload.specs if spec.job_id not in without]
    after = _before(job, str(path), known, arrival_seconds)
    ((spec, truth),) = _made(job, str(path), job_id, arrival_seconds, like, workload.profile, after)
    return spec, truth


def read_jobs_file(path: Path, profile: Profile) -> Workload:
    """Read a workload from a file of jobs; a job's id is its position in the file.

    Raises:
        InputError: The file cannot be read, or a field is invalid; the error names it.
    """
    fields = read_toml(path, "a TOML file of jobs")
    file = validate_fields(path, JobsFile, fields, "a file of jobs")
    like = {job.model: job.samples_per_epoch for job in file.jobs if job.model}
    known = {model: samples for model, samples in like.items() if samples}
    made: list[tuple[JobSpec, GroundTruth]] = []
    places: dict[int, str] = {}
    for number, job in enumerate(file.jobs):
        place, before = f"{path}: jobs[{number}]", [spec for spec, _ in made]
        after = _before(job, place, before, job.arrival_seconds)
        new = _made(job, place, len(made), job.arrival_seconds, known, profile, after)
        made += new
        places |= {spec.job_id: place for spec, _ in new}
        if len(made) > MOST_JOBS:
            raise InputError(place, f"is more than {MOST_JOBS:,} jobs", "give smaller arrays")
    specs, truths = sort_by_arrival(made)
    return Workload(path.name, specs, truths, profile, places)


def _before(
    job: JobFile, place: str, known: Sequence[JobSpec], arrival_seconds: float
) -> tuple[int, ...]:
    """Return the ids of earlier jobs named by `after`; refuse unknown and later ones."""
    ids: dict[int, None] = {}
    for name in job.after:
        jobs = [*find_named(name, known)]
        if not jobs:
            problem, remedy = f"{name!r} is not an earlier job of the file", "name an earlier job"
            raise InputError(f"{place}: after", problem, remedy)
        late = [spec for spec in jobs if spec.arrival_seconds > arrival_seconds]
        if late:
            problem = f"{name!r} arrives at {late[0].arrival_seconds:g} s, later than the job"
            raise InputError(f"{place}: after", problem, "name jobs that arrive earlier")
        ids |= dict.fromkeys(spec.job_id for spec in jobs)
    return tuple(ids)


def _made(
    job: JobFile,
    place: str,
    job_id: int,
    arrival_seconds: float,
    samples: Mapping[str, int],
    profile: Profile,
    after: tuple[int, ...],
) -> list[tuple[JobSpec, GroundTruth]]:
    try:
        specs = job.specs(job_id, arrival_seconds, profile, samples, after)
        return [(spec, job.true(spec, profile)) for spec in specs]
    except InputError as error:
        field = error.place.removeprefix(f"job {job_id}, ")
        raise InputError(f"{place}: {field}", error.problem, error.remedy) from None
