"""Check that runs reproduce the published simulator's figures within tolerances."""

import csv
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

from flows.runs.simulation import simulate
from flows.runs.start import make_start
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.fidelity import Fidelity
from tasks.record import Parameter, Settings, make_pool
from tasks.sources import Workload
from warehouse.analytics.questions import Analytics
from warehouse.workloads.trace import PUBLISHED


@dataclass(frozen=True, slots=True)
class Tolerance:
    """Accepted deviation of a run's figures from the published figures.

    Attributes:
        seconds: Relative deviation of makespan and mean JCT.
        unfair: Absolute deviation of the unfair fraction.
        worst: Relative deviation of worst ρ.
        worst_range: Accepted range of worst ρ if published runs vary among themselves.
    """

    seconds: float
    unfair: float
    worst: float = 0.0
    worst_range: tuple[float, float] | None = None

    def accepts(self, figure: str, here: float, published: float) -> bool:
        """Return whether a figure is within the tolerance of the published figure."""
        if figure == "unfair_fraction":
            return abs(here - published) <= self.unfair
        if figure in ("worst_ftf", "worst_rho"):
            low, high = self.worst_range or (
                published * (1.0 - self.worst),
                published * (1.0 + self.worst),
            )
            return low <= here <= high
        return abs(here / published - 1.0) <= self.seconds


EXACT = Tolerance(seconds=0.01, unfair=0.01, worst=0.03)
"""For policies whose figures do not depend on the choice among several optima: the deviation of the
published simulator's reruns, with room for rounding. Chosen by hand."""

NOT_UNIQUE = Tolerance(seconds=0.05, unfair=0.05, worst=0.15)
"""For policies whose figures depend on the solver's choice among several optima. Chosen by hand,
above the spread of the published simulator's own reruns."""

PUBLISHED_SHOCKWAVE = Tolerance(seconds=0.05, unfair=0.02, worst_range=(1.60, 2.20))
"""Published runs vary among themselves; the range of worst FTF spans their extremes. The other
tolerances are chosen by hand."""

TOLERANCES = {
    "gavel": EXACT,
    "mst": EXACT,
    "allox": EXACT,
    "gandiva-fair": EXACT,
    "ossp": NOT_UNIQUE,
    "themis": NOT_UNIQUE,
    "shockwave-published": PUBLISHED_SHOCKWAVE,
}
"""Tolerance by policy."""


@dataclass(frozen=True, slots=True)
class Case:
    """A public trace as the published simulator ran it.

    Attributes:
        name: Name of the trace file without its suffix, and key in the table of results.
        tuning: Shockwave's parameters for this trace, as set by its authors.
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
"""Names in the table of results that differ from ours."""

RESULTS = Path(__file__).parent / "published_results.csv"
"""The published simulator's figures, run by us on both traces."""

FIGURES = ("makespan_s", "mean_jct_s", "worst_ftf", "unfair_fraction")


def check_conformance(folder: Path) -> Iterator[dict[str, object]]:
    """Run every published policy on both public traces.

    Args:
        folder: Folder with the traces and their throughputs, as `shockwave workload fetch`
            makes it; perhaps with `reference_results.csv`, figures of the published simulator
            by trace, policy and source (`run`), in place of those kept here.

    Yields:
        A row per trace and policy: each figure here and as published, and `ok`.

    Raises:
        InputError: A file is missing or invalid.
    """
    results = folder / "reference_results.csv"
    results = results if results.exists() else RESULTS
    published = _published(results)
    for case, policy in product(CASES, TOLERANCES):
        if (case.name, NAMES.get(policy, policy)) not in published:
            raise InputError(
                str(results), f"has no run of {policy} on {case.name}", "add the published figures"
            )
    with tempfile.TemporaryDirectory() as warehouse:
        for case in CASES:
            workload = Source(
                trace=folder / f"{case.name}.trace",
                profile=folder / case.profile,
                regimes=Path(PUBLISHED),
            ).open()
            for policy, tolerance in TOLERANCES.items():
                settings = Settings(
                    policy,
                    make_pool(case.gpus),
                    backend="gurobi",  # as in the published system, since optima are not unique
                    fidelity=Fidelity.REFERENCE,
                    parameters=case.tuning if policy == "shockwave-published" else (),
                )
                here = measure_figures(workload, settings, Path(warehouse))
                here |= {name: here[f"{name}_published"] for name in FIGURES[2:]}
                there = published[case.name, NAMES.get(policy, policy)]
                about = {"trace": case.name, "policy": policy}
                yield about | compare_figures(here, there, FIGURES, tolerance)


def measure_figures(workload: Workload, settings: Settings, warehouse: Path) -> dict[str, float]:
    """Return the headline figures of a run, and its id as `run`."""
    run = simulate(make_start(workload, settings), warehouse)
    columns, (row,) = Analytics(warehouse).query("FROM run_summary", [run])
    return dict(zip(columns, row, strict=True))


def compare_figures(
    here: Mapping[str, float],
    published: Mapping[str, float],
    figures: Sequence[str],
    tolerance: Tolerance,
) -> dict[str, object]:
    """Return each figure here and as published, the rounds, and whether all are accepted (`ok`)."""
    row: dict[str, object] = {}
    for figure in figures:
        row |= {figure: here[figure], f"{figure}_published": published[figure]}
    ok = all(tolerance.accepts(name, here[name], published[name]) for name in figures)
    return row | {"rounds": here["rounds"], "ok": ok}


@contextmanager
def read_results(path: Path, columns: Iterable[str]) -> Iterator[Iterator[dict[str, str]]]:
    """Open a table of the published simulator's figures; yield its rows.

    Raises:
        InputError: The table is missing, lacks a column, or has a value that is not a number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            yield csv.DictReader(file)
    except OSError as error:
        raise InputError(
            str(path), str(error.strerror), "give the folder with the public traces"
        ) from None
    except (KeyError, ValueError, UnicodeDecodeError):
        raise InputError(
            str(path),
            f"is not a table with {', '.join(columns)}",
            "give the published simulator's results",
        ) from None


def _published(path: Path) -> dict[tuple[str, str], dict[str, float]]:
    with read_results(path, ("trace", "policy", "source", *FIGURES)) as rows:
        return {
            (row["trace"], row["policy"]): {name: float(row[name]) for name in FIGURES}
            for row in rows
            if row["source"] == "run"
        }
