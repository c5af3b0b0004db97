"""Where a simulation's jobs come from, as plain parameters."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from predictor.errors import InputError
from predictor.job import Mode
from warehouse.workloads.bare_jobs import read_job_table
from warehouse.workloads.generator import MEAN_INTERARRIVAL_SECONDS, generate_workload
from warehouse.workloads.mix import Mix
from warehouse.workloads.philly import read_philly
from warehouse.workloads.tiresias import read_tiresias
from warehouse.workloads.trace import read_workload
from warehouse.workloads.workload import Arrivals, Format, Workload

MOST_SEED = 2**63 - 1
"""What a column of the warehouse holds."""

FOR_GENERATED = (
    "jobs",
    "arrivals",
    "seed",
    "mean_interarrival_seconds",
    "contention_factor",
    "shortest_seconds",
    "longest_seconds",
    "scale_factors",
    "modes",
)
FOR_FORMAT: Mapping[Format, tuple[str, ...]] = {
    Format.PUBLIC: ("profile", "regimes"),
    Format.TIRESIAS: (),
    Format.PHILLY: ("seed", "modes", "only", "skip_unusable"),
    Format.TABLE: ("seed", "modes", "only", "skip_unusable", "columns"),
}
"""Options that mean something to generated jobs, and to those of each format."""


@dataclass(frozen=True)
class Source:
    """A trace with its tables, or what to generate.

    Attributes:
        trace: Job trace; without it, jobs are generated.
        profile: Throughput table of a public trace.
        regimes: Regimes of a public trace.
        jobs: How many jobs to generate.
        arrivals: When generated jobs arrive.
        seed: Seed of all that is drawn.
        format: What the trace is.
        columns: `ROLE=COLUMN,…`: what the columns of a table mean.
        only: `COLUMN=VALUE,…`: lines of a table to read; all by default.
        skip_unusable: Whether to leave lines of a table out that can be no jobs.
        mean_interarrival_seconds: Mean gap between Poisson arrivals; by default 90 s, or
            what the contention factor asks for.
        contention_factor: Work that arrives over the work that the cluster can do.
        shortest_seconds: Least isolated run time of generated jobs.
        longest_seconds: Largest isolated run time of generated jobs.
        scale_factors: `GPUS=WEIGHT,…` of generated jobs.
        modes: `MODE=WEIGHT,…` of generated jobs and of those of a table.
    """

    trace: Path | None = None
    profile: Path | None = None
    regimes: Path | None = None
    jobs: int = 60
    arrivals: Arrivals = Arrivals.POISSON
    seed: int = 0
    format: Format = Format.PUBLIC
    columns: str = ""
    only: str = ""
    skip_unusable: bool = False
    mean_interarrival_seconds: float | None = None
    contention_factor: float | None = None
    shortest_seconds: float = 720.0
    longest_seconds: float = 18_000.0
    scale_factors: str = "1=0.6,2=0.3,4=0.09,8=0.01"
    modes: str = "gns=0.5,accordion=0.5"

    def open(self, gpus: int | None = None, gpu_type: str = "") -> Workload:
        """Read or generate the jobs.

        Args:
            gpus: GPUs of the cluster; a contention factor needs them.
            gpu_type: Whose throughputs the profile must have; on a virtual cluster any.

        Raises:
            InputError: A file or an option is wrong.
        """
        self._check_options()
        if self.trace is None:
            return self._generate(gpus)
        format_ = Format(self.format)
        if format_ is Format.PUBLIC:
            if self.profile is None:
                raise InputError(
                    "--profile",
                    "missing",
                    "give the throughput table of a public trace, or the --format of another",
                )
            return read_workload(self.trace, self.profile, self.regimes, gpu_type)
        if format_ is Format.TIRESIAS:
            return read_tiresias(self.trace)
        return self._read_table(self.trace, format_)

    def _check_options(self) -> None:
        if self.seed < 0:
            raise InputError("--seed", f"{self.seed} is negative", "give 0 or more")
        if self.seed > MOST_SEED:
            raise InputError("--seed", f"{self.seed} is out of range", f"give at most {MOST_SEED}")
        meant = FOR_GENERATED if self.trace is None else FOR_FORMAT[Format(self.format)]
        some = {*FOR_GENERATED, *(name for names in FOR_FORMAT.values() for name in names)}
        for field in fields(self):
            changed = getattr(self, field.name) != field.default
            option = f"--{field.name.replace('_', '-')}"
            if changed and self.trace is None and field.name == "format":
                raise InputError("--trace", "missing", "a format is that of a trace")
            if changed and field.name in some and field.name not in meant:
                if self.trace is None:
                    raise InputError("--trace", "missing", f"{option} belongs to a trace")
                raise InputError(
                    option, f"says nothing about a {self.format} trace", "leave it out"
                )

    def _generate(self, gpus: int | None) -> Workload:
        mix = Mix(
            shortest_seconds=self.shortest_seconds,
            longest_seconds=self.longest_seconds,
            scale_factors=_scale_factors(self.scale_factors),
            modes=_modes(self.modes),
        )
        return generate_workload(
            self.jobs,
            rng=np.random.default_rng(self.seed),
            arrivals=Arrivals(self.arrivals),
            mean_interarrival_seconds=self._gap(mix, gpus),
            mix=mix,
        )

    def _gap(self, mix: Mix, gpus: int | None) -> float:
        """Mean seconds between arrivals."""
        gap, factor = self.mean_interarrival_seconds, self.contention_factor
        for option, given in (
            ("--mean-interarrival-seconds", gap),
            ("--contention-factor", factor),
        ):
            if given is not None and Arrivals(self.arrivals) is Arrivals.AT_ONCE:
                raise InputError(option, "means nothing if all jobs arrive at once", "leave it out")
        if factor is None:
            return MEAN_INTERARRIVAL_SECONDS if gap is None else gap
        if gap is not None:
            raise InputError(
                "--contention-factor",
                "follows from --mean-interarrival-seconds",
                "give one of them",
            )
        if gpus is None:
            raise InputError("--gpus", "missing", "a contention factor is that of a cluster")
        return mix.interarrival_seconds(factor, gpus)

    def _read_table(self, trace: Path, format_: Format) -> Workload:
        rng = np.random.default_rng(self.seed)
        modes, only = _modes(self.modes), _pairs("--only", self.only)
        if format_ is Format.PHILLY:
            return read_philly(
                trace, rng=rng, modes=modes, only=only, skip_unusable=self.skip_unusable
            )
        columns = _pairs("--columns", self.columns)
        return read_job_table(
            trace, columns, rng=rng, modes=modes, only=only, skip_unusable=self.skip_unusable
        )


def _pairs(option: str, text: str) -> dict[str, str]:
    """What `NAME=VALUE,…` says."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InputError(option, f"{part!r} is not like NAME=VALUE", "separate by commas")
        if name in pairs:
            raise InputError(option, f"{name!r} is there twice", "leave one out")
        pairs[name] = value
    return pairs


def _weights(option: str, text: str) -> dict[str, float]:
    try:
        return {name: float(weight) for name, weight in _pairs(option, text).items()}
    except ValueError:
        raise InputError(option, f"{text!r} has a weight that is no number", "mend it") from None


def _scale_factors(text: str) -> dict[int, float]:
    weights = _weights("--scale-factors", text)
    try:
        return {int(gpus): weight for gpus, weight in weights.items()}
    except ValueError:
        raise InputError(
            "--scale-factors", f"{text!r} is not like 1=0.5,8=0.5", "give whole numbers of GPUs"
        ) from None


def _modes(text: str) -> dict[Mode, float]:
    weights = _weights("--modes", text)
    for name in weights:
        if name not in list(Mode):
            raise InputError(
                "--modes", f"{name!r} is not an adaptation mode", f"known are {', '.join(Mode)}"
            )
    return {Mode(name): weight for name, weight in weights.items()}
