"""The published simulator's figures, run again here and held against tolerances."""

import csv
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.fidelity import Fidelity
from tasks.record import Parameter, Settings, one_pool
from warehouse.analytics.questions import Analytics


@dataclass(frozen=True, slots=True)
class Tolerance:
    """How far a run may be from the published one.

    Attributes:
        seconds: Makespan and mean JCT, relative.
        unfair: Unfair fraction, absolute.
        worst: Worst ρ, relative.
        worst_range: Worst ρ, from and to, where the published one varies by itself.
    """

    seconds: float
    unfair: float
    worst: float = 0.0
    worst_range: tuple[float, float] | None = None

    def accepts(self, figure: str, here: float, published: float) -> bool:
        """Whether a figure is near enough to the published one."""
        if figure == "unfair_fraction":
            return abs(here - published) <= self.unfair
        if figure == "worst_ftf":
            low, high = self.worst_range or (
                published * (1.0 - self.worst),
                published * (1.0 + self.worst),
            )
            return low <= here <= high
        return abs(here / published - 1.0) <= self.seconds


EXACT = Tolerance(seconds=0.01, unfair=0.01, worst=0.03)
"""For policies whose figures do not depend on a solver's choice among optima."""

NOT_UNIQUE = Tolerance(seconds=0.05, unfair=0.05, worst=0.15)
"""For those whose do."""

PUBLISHED_SHOCKWAVE = Tolerance(seconds=0.05, unfair=0.02, worst_range=(1.60, 2.20))
"""Its own runs vary from one to the next, and these are its extremes."""

TOLERANCES = {
    "gavel": EXACT,
    "mst": EXACT,
    "allox": EXACT,
    "gandiva-fair": EXACT,
    "ossp": NOT_UNIQUE,
    "themis": NOT_UNIQUE,
    "shockwave-published": PUBLISHED_SHOCKWAVE,
}
"""By policy."""


@dataclass(frozen=True, slots=True)
class Case:
    """A public trace as the published simulator ran it.

    Attributes:
        name: Of the trace file, without its suffix, and in the table of results.
        profile: Throughput table.
        gpus: GPUs of the cluster.
        tuning: What its authors set Shockwave's parameters to for this trace.
    """

    name: str
    profile: str
    gpus: int
    tuning: tuple[Parameter, ...]


CASES = (
    Case(
        "jobs120_gpus32",
        "tacc_throughputs.json",
        32,
        (Parameter("fairness_power", 12.0), Parameter("regularizer", 1e-3)),
    ),
    Case(
        "jobs220_gpus64",
        "wisr_throughputs.json",
        64,
        (Parameter("fairness_power", 5.0), Parameter("regularizer", 10.0)),
    ),
)

NAMES = {"gandiva-fair": "gandiva_fair", "shockwave-published": "shockwave"}
"""How the table of results calls a policy, where its name there is another."""

FIGURES = ("makespan_s", "mean_jct_s", "worst_ftf", "unfair_fraction")


def conformance(folder: Path) -> Iterator[dict[str, object]]:
    """Run every policy that was published on both public traces.

    Args:
        folder: Holds the traces with their tables, and `reference_results.csv`: per
            trace, policy and source (`run`) the figures of the published simulator.

    Yields:
        A row per trace and policy: each figure here and as published, and `ok`.

    Raises:
        InputError: A file is missing or wrong.
    """
    results = folder / "reference_results.csv"
    published = _published(results)
    for case, policy in product(CASES, TOLERANCES):
        if (case.name, NAMES.get(policy, policy)) not in published:
            raise InputError(
                str(results), f"has no run of {policy} on {case.name}", "add the published figures"
            )
    with tempfile.TemporaryDirectory() as warehouse:
        for case in CASES:
            source = Source(
                trace=folder / f"{case.name}.trace",
                profile=folder / case.profile,
                regimes=folder / "gns_regimes.csv",
            )
            for policy, tolerance in TOLERANCES.items():
                settings = Settings(
                    policy,
                    one_pool(case.gpus),
                    backend="gurobi",  # the published system's: optima are not unique
                    fidelity=Fidelity.REFERENCE,
                    parameters=case.tuning if policy == "shockwave-published" else (),
                )
                here = _figures(source, settings, Path(warehouse))
                there = published[case.name, NAMES.get(policy, policy)]
                row: dict[str, object] = {"trace": case.name, "policy": policy}
                for figure in FIGURES:
                    row |= {figure: here[figure], f"{figure}_published": there[figure]}
                ok = all(tolerance.accepts(name, here[name], there[name]) for name in FIGURES)
                yield row | {"rounds": here["rounds"], "ok": ok}


def _figures(source: Source, settings: Settings, warehouse: Path) -> dict[str, float]:
    """The headline figures of one run."""
    run = simulate(make_start(source.open(), settings), warehouse)
    columns, (row,) = Analytics(warehouse).query("FROM run_summary", [run])
    return dict(zip(columns, row, strict=True))


def _published(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    """The published simulator's own figures by trace and policy."""
    try:
        with path.open(newline="", encoding="utf-8") as file:
            return {
                (row["trace"], row["policy"]): {name: float(row[name]) for name in FIGURES}
                for row in csv.DictReader(file)
                if row["source"] == "run"
            }
    except OSError as error:
        raise InputError(
            str(path), str(error.strerror), "give the folder with the public traces"
        ) from None
    except (KeyError, ValueError, UnicodeDecodeError):
        raise InputError(
            str(path),
            f"is not a table with trace, policy, source, {', '.join(FIGURES)}",
            "give the published simulator's results",
        ) from None
