"""Sources of a simulation's jobs, as plain parameters.

The command line derives its options from this module, so it imports modules that read or generate
jobs only when needed.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from flows.runs.setting import Setting, check_bounds
from flows.runs.settings import SEED
from predictor.errors import InputError, check_plain, meant
from predictor.job import TABLE_MODES, Mode
from predictor.plugins import Kind, find_plugin, plugins
from warehouse.workloads.kinds import LOGS, MOST_JOBS, Arrivals, Format

if TYPE_CHECKING:
    from predictor.throughput import Profile
    from tasks.sources import Workload
    from warehouse.workloads.logs.log import ClusterLog, TableJob
    from warehouse.workloads.mix import Mix


def format_names() -> list[str]:
    """Return the formats of traces, ours first, without importing other packages' readers."""
    return [*Format, *(name for name in plugins(Kind.TRACES) if name not in list(Format))]


@dataclass(frozen=True)
class FromTables:
    """Settings of a trace with its tables."""

    trace: Annotated[
        Path | None, Setting("Trace", "Job trace; without it, jobs are generated.")
    ] = None
    format: Annotated[
        str, Setting("Format", "Format of the trace: public, sacct, table, …", choices=format_names)
    ] = Format.PUBLIC.value
    profile: Annotated[
        Path | None,
        Setting(
            "Profile",
            "Throughput table (JSON), or the name of a throughput model for a public trace.",
        ),
    ] = None
    throughputs: Annotated[
        Path | None,
        Setting(
            "Throughputs",
            "Throughputs by GPU type (Gavel's CSV, may be .gz), instead of a profile; "
            "without a trace, jobs are drawn from it.",
        ),
    ] = None
    applications: Annotated[
        Path | None,
        Setting(
            "Applications",
            "Folder of measured applications (CSV), whose jobs the trace has.",
        ),
    ] = None
    regimes: Annotated[
        Path | None,
        Setting(
            "Regimes",
            "Batch-size regimes (CSV) of a public trace; published for those of Shockwave's.",
        ),
    ] = None


@dataclass(frozen=True)
class LogOptions:
    """Settings of a cluster's log."""

    columns: Annotated[str, Setting("Columns", "Meaning of a table's columns: ROLE=COLUMN,…")] = ""
    header: Annotated[
        str, Setting("Header", "Columns of a log without a header: a file of them, or NAME,NAME,…")
    ] = ""
    zone: Annotated[
        str, Setting("Zone", "Time zone of a log's times that name none, such as Europe/Berlin.")
    ] = ""
    only: Annotated[
        str, Setting("Only", "Filter on a log's lines: COLUMN=VALUE|VALUE,… with * for any text.")
    ] = ""
    skip_unusable: Annotated[
        bool, Setting("Skip unusable lines", "Skip a log's lines that cannot be read.")
    ] = False
    slots: Annotated[
        int,
        Setting(
            "Slots of a GPU",
            "Slots of a GPU into which a log's shares of GPUs are rounded up; by default as few "
            "as are needed.",
            least=0,
            most=100,
        ),
    ] = 0


@dataclass(frozen=True)
class FromTrace(LogOptions, FromTables):
    """Settings of a trace of any format."""

    adapt: Annotated[
        bool,
        Setting("Adapt", "Draw models, adaptation modes and regimes for the jobs of a log."),
    ] = False


@dataclass(frozen=True)
class Generated:
    """Settings of the workload generator."""

    jobs: Annotated[
        int,
        Setting("Jobs", "Number of jobs to generate.", least=1, most=MOST_JOBS),
    ] = 60
    arrivals: Annotated[Arrivals, Setting("Arrivals", "Arrival process of generated jobs.")] = (
        Arrivals.POISSON
    )
    mean_interarrival_seconds: Annotated[
        float | None,
        Setting(
            "Mean gap (s)",
            "Mean time between Poisson arrivals, in seconds; by default 90.",
            above=0,
            most=1_000_000_000,
        ),
    ] = None
    contention_factor: Annotated[
        float | None,
        Setting(
            "Contention factor",
            "Arriving work over the capacity of the GPUs, instead of a mean gap.",
            above=0,
        ),
    ] = None
    shortest_seconds: Annotated[
        float,
        Setting(
            "Shortest (s)",
            "Shortest isolated run time of generated jobs, in seconds.",
            least=1,
            most=1_000_000_000,
        ),
    ] = 720.0
    longest_seconds: Annotated[
        float,
        Setting(
            "Longest (s)",
            "Longest isolated run time of generated jobs, in seconds.",
            least=1,
            most=1_000_000_000,
        ),
    ] = 18_000.0
    scale_factors: Annotated[
        str,
        Setting(
            "Scale factors",
            "Weights of generated scale factors: GPUS=WEIGHT,… By default "
            "1=0.6,2=0.3,4=0.09,8=0.01; with throughputs 1=0.7,2=0.1,4=0.15,8=0.05.",
        ),
    ] = ""
    modes: Annotated[
        str, Setting("Adaptation modes", "Weights of generated adaptation modes: MODE=WEIGHT,…")
    ] = "gns=0.5,accordion=0.5"


@dataclass(frozen=True)
class WorkloadSettings(Generated, FromTrace):
    """Settings of a workload: a trace with its tables, or parameters of the generator."""


FOR_GENERATED = {"seed", *(field.name for field in fields(Generated))}
FROM_THROUGHPUTS = {
    "throughputs",
    "jobs",
    "arrivals",
    "mean_interarrival_seconds",
    "scale_factors",
    "seed",
}
"""Settings of jobs generated from a table of throughputs."""

OF_TRACES = {"trace", "format"}
OF_APPLICATIONS = {"trace", "applications"}
FOR_PLUGIN = {"seed", "modes", "adapt", "slots"}
OF_LOGS = {*FOR_PLUGIN, "header", "zone", "only", "skip_unusable"}
FOR_FORMAT: Mapping[str, set[str]] = {
    Format.PUBLIC: {"profile", "throughputs", "regimes"},
    Format.TIRESIAS: set(),
    Format.JOBS: {"profile", "throughputs"},
    **dict.fromkeys(LOGS, OF_LOGS),
    Format.TABLE: {*OF_LOGS, "columns"},
}
"""Settings of all traces, of traces with another package's reader, of logs, and of each format."""


@dataclass(frozen=True)
class Source(WorkloadSettings):
    """Settings of a workload, with the seed of its random draws."""

    seed: Annotated[int, SEED] = 0

    def open(self, gpus: int | None = None, gpu_types: Sequence[str] = ()) -> "Workload":
        """Read or generate the jobs.

        Args:
            gpus: GPUs of the cluster; required for a contention factor.
            gpu_types: GPU types that the profile must have; by default any.

        Raises:
            InputError: A file or a setting is invalid.
        """
        workload = self._open(gpus, gpu_types)
        curves = workload.profile.losses
        if not curves:
            return workload
        truths = (
            replace(truth, losses=curves.get(spec.model, ()))
            for spec, truth in zip(workload.specs, workload.truths, strict=True)
        )
        return replace(workload, truths=tuple(truths))

    def _open(self, gpus: int | None, gpu_types: Sequence[str]) -> "Workload":
        self._check()
        if self.trace is None:
            return self._draw(gpu_types) if self.throughputs else self._generate(gpus)
        if self.format not in list(Format):
            return self._read_plugged(self.trace, gpu_types)
        if self.applications:
            from warehouse.workloads.applications import (
                read_application_jobs,
                read_application_profile,
            )

            if self.format == Format.JOBS:
                profile = read_application_profile(self.applications, gpu_types)
                return self._read_jobs(self.trace, gpu_types, profile)
            return read_application_jobs(self.trace, self.applications, gpu_types)
        format_ = Format(self.format)
        if format_ is Format.PUBLIC:
            from warehouse.workloads.trace import read_workload

            table = self.throughputs or self.profile
            if table is None:
                raise InputError(
                    "profile",
                    "missing",
                    "give the throughput table of a public trace, or the format of another",
                )
            return read_workload(self.trace, table, self.regimes, gpu_types)
        if format_ is Format.JOBS:
            return self._read_jobs(self.trace, gpu_types)
        if format_ is Format.TIRESIAS:
            from warehouse.workloads.tiresias import read_tiresias

            return read_tiresias(self.trace)
        return self.make_jobs(self.read_log(), gpu_types)

    def _check(self) -> None:
        check_bounds(Source, self)
        generated = self.trace is None
        if self.format not in (names := format_names()):
            raise InputError("format", f"unknown format {self.format!r}", meant(self.format, names))
        if self.throughputs and self.profile:
            raise InputError(
                "throughputs", "cannot be combined with a profile", "give only one of them"
            )
        taken = OF_TRACES | FOR_FORMAT.get(self.format, FOR_PLUGIN)
        if self.applications:
            beside = {"format", *FOR_FORMAT[Format.JOBS]} if self.format == Format.JOBS else set()
            taken = OF_APPLICATIONS | beside
        if generated:
            taken = FROM_THROUGHPUTS if self.throughputs else FOR_GENERATED
        for field in fields(self):
            if getattr(self, field.name) == field.default or field.name in taken:
                continue
            if generated and field.name not in FOR_GENERATED:
                raise InputError(field.name, "belongs to a trace", "give the trace as well")
            if generated:
                problem = "has no effect on jobs drawn from throughputs"
                raise InputError(field.name, problem, "leave it out")
            raise InputError(field.name, f"has no effect on a {self.format} trace", "leave it out")
        for name in ("mean_interarrival_seconds", "contention_factor"):
            if getattr(self, name) is not None and Arrivals(self.arrivals) is Arrivals.AT_ONCE:
                raise InputError(name, "has no effect if all jobs arrive at once", "leave it out")

    def _generate(self, gpus: int | None) -> "Workload":
        from warehouse.workloads.mix import Mix

        mix = Mix(
            shortest_seconds=self.shortest_seconds,
            longest_seconds=self.longest_seconds,
            modes=_modes(self.modes),
        )
        if self.scale_factors:
            mix = replace(mix, scale_factors=_scale_factors(self.scale_factors))
            return self._generate_mix(gpus, mix)
        workload = self._generate_mix(gpus, mix)
        fitting = {gang: w for gang, w in mix.scale_factors.items() if gang <= (gpus or gang)}
        if not fitting or max(spec.demand.least for spec in workload.specs) in fitting:
            return workload
        return self._generate_mix(gpus, replace(mix, scale_factors=fitting))

    def _generate_mix(self, gpus: int | None, mix: "Mix") -> "Workload":
        import numpy as np

        from warehouse.workloads.generator import generate_workload

        return generate_workload(
            self.jobs,
            rng=np.random.default_rng(self.seed),
            arrivals=Arrivals(self.arrivals),
            mean_interarrival_seconds=self._gap_on(gpus, mix),
            mix=mix,
        )

    def _draw(self, gpu_types: Sequence[str]) -> "Workload":
        import numpy as np

        from warehouse.workloads.gavel import read_whole
        from warehouse.workloads.gavel_generator import GANGS, generate_from_table

        assert self.throughputs is not None, "asked for"
        return generate_from_table(
            read_whole(self.throughputs, gpu_types),
            self.jobs,
            rng=np.random.default_rng(self.seed),
            gpu_types=gpu_types,
            arrivals=Arrivals(self.arrivals),
            mean_interarrival_seconds=self._gap(),
            scale_factors=_scale_factors(self.scale_factors) if self.scale_factors else GANGS,
        )

    def _gap(self) -> float:
        """Return the mean gap between arrivals in seconds, without a contention factor."""
        from warehouse.workloads.generator import MEAN_INTERARRIVAL_SECONDS

        gap = self.mean_interarrival_seconds
        return MEAN_INTERARRIVAL_SECONDS if gap is None else gap

    def _gap_on(self, gpus: int | None, mix: "Mix") -> float:
        """Return the mean gap between arrivals in seconds, for a mix of jobs on a cluster."""
        factor = self.contention_factor
        if factor is None:
            return self._gap()
        if self.mean_interarrival_seconds is not None:
            raise InputError(
                "contention_factor", "cannot be combined with a mean gap", "give only one of them"
            )
        if gpus is None:
            raise InputError(
                "gpus",
                "is missing",
                "give the number of GPUs, on which a contention factor depends",
            )
        return mix.interarrival_seconds(factor, gpus)

    def _read_jobs(
        self, trace: Path, gpu_types: Sequence[str], measured: "Profile | None" = None
    ) -> "Workload":
        """Read a file of jobs; `measured` has applications, in whose runs GPUs are not shared."""
        from flows.runs.job_file import read_jobs_file
        from predictor.throughput import Profile
        from warehouse.workloads.tables import read_throughputs

        table = self.throughputs or self.profile
        profile = read_throughputs(table, gpu_types) if table else Profile({})
        if measured:
            applications = measured.applications
            for model in sorted(applications.keys() & {model for model, *_ in profile.rates}):
                raise InputError(
                    "throughputs", f"{model} is a measured application", "leave its rates out"
                )
            rates = {**profile.rates, **measured.rates}
            profile = replace(profile, rates=rates, pairs={}, applications=applications)
        return read_jobs_file(trace, profile)

    def _read_plugged(self, trace: Path, gpu_types: Sequence[str]) -> "Workload":
        from warehouse.workloads.plugged import read_plugged

        plugin = find_plugin(Kind.TRACES, self.format)
        assert plugin is not None, "checked"
        return read_plugged(plugin, trace, lambda source, jobs: self._make(source, jobs, gpu_types))

    def read_log(self) -> "ClusterLog":
        """Read the log of a cluster.

        Raises:
            InputError: The file cannot be read, has no jobs, or is not a log.
        """
        from warehouse.workloads.logs import READERS
        from warehouse.workloads.logs.declared import DeclaredTable
        from warehouse.workloads.logs.log import ReadOptions, read_log

        self._check()
        if self.trace is None or self.format not in LOGS:
            remedy = f"give a trace in one of the formats {', '.join(LOGS)}"
            raise InputError("format", f"{self.format} is not a log of a cluster", remedy)
        options = ReadOptions(
            self.zone, parse_pairs("only", self.only), _names(self.header), self.skip_unusable
        )
        declared = DeclaredTable(parse_pairs("columns", self.columns))
        reader = READERS.get(Format(self.format)) or declared
        return read_log(reader, self.trace, options)

    def make_jobs(self, log: "ClusterLog", gpu_types: Sequence[str] = ()) -> "Workload":
        """Return the jobs of a log as a workload, for a cluster of GPU types, if it names any.

        Raises:
            InputError: A setting is invalid, or a job arrives too long after the first one.
        """
        return replace(self._make(log.source, log.jobs, gpu_types), left_out=log.left_out)

    def _make(
        self, source: str, jobs: "Sequence[TableJob]", gpu_types: Sequence[str]
    ) -> "Workload":
        """Make a workload of a log's jobs."""
        from warehouse.workloads.imported import draw_workload, make_workload

        modes = _modes(self.modes)
        if self.adapt:
            import numpy as np

            rng = np.random.default_rng(self.seed)
            return draw_workload(source, jobs, rng, modes, self.slots)
        if self.modes != Source.modes and set(filter(modes.get, modes)) != {Mode.STATIC}:
            problem = "has no effect: jobs of a log are replayed as they ran"
            raise InputError("modes", problem, "set adapt to draw how jobs adapt")
        return make_workload(source, jobs, self.slots, gpu_types)


def _names(header: str) -> list[str]:
    """Return the names of columns in a text, or in a file as any log has them."""
    path = Path(header)
    if header and "," not in header and path.is_file():
        from warehouse.workloads.fields import read_text

        header = read_text(path).strip()
    return [name.strip() for name in re.split(r"[,;|\t\x1f]", header)] if header else []


def parse_pairs(field: str, text: str) -> dict[str, str]:
    """Parse `NAME=VALUE,…`."""
    pairs: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        apart = field == "columns" and ";" in value and "=" in value
        if not (name and equals and value) or apart:
            raise InputError(field, f"{part!r} is not of the form NAME=VALUE", "separate by commas")
        if name in pairs:
            raise InputError(field, f"{name!r} is given twice", "leave one out")
        pairs[name] = value
    return pairs


def _weights(field: str, text: str) -> dict[str, float]:
    try:
        return {
            name: float(check_plain(weight)) for name, weight in parse_pairs(field, text).items()
        }
    except ValueError:
        raise InputError(
            field, f"{text!r} has a weight that is not a number", "give numbers"
        ) from None


def _scale_factors(text: str) -> dict[int, float]:
    weights = _weights("scale_factors", text)
    try:
        return {int(check_plain(gpus)): weight for gpus, weight in weights.items()}
    except ValueError:
        raise InputError(
            "scale_factors",
            f"{text!r} is not like 1=0.5,8=0.5",
            "give whole numbers of GPUs",
        ) from None


def _modes(text: str) -> dict[Mode, float]:
    weights = _weights("modes", text)
    for name in weights:
        if name not in TABLE_MODES:
            raise InputError(
                "modes",
                f"{name!r} is not an adaptation mode",
                f"choose from {', '.join(TABLE_MODES)}",
            )
    return {Mode(name): weight for name, weight in weights.items()}
