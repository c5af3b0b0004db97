"""The check against published results: its tolerances, and its errors."""

import csv
import re
from pathlib import Path
from typing import Any

import pytest

from harness import conformance
from harness.conformance import (
    CASES,
    EXACT,
    FIGURES,
    PUBLISHED_SHOCKWAVE,
    Tolerance,
)
from harness.conformance_of_types import check_conformance_of_types
from predictor.errors import InputError


@pytest.mark.parametrize(
    ("tolerance", "figure", "here", "accepted"),
    [
        (EXACT, "makespan_s", 100.9, True),
        (EXACT, "makespan_s", 98.9, False),
        (EXACT, "mean_jct_s", 101.1, False),
        (EXACT, "worst_ftf", 102.9, True),
        (EXACT, "worst_ftf", 96.9, False),
        (PUBLISHED_SHOCKWAVE, "worst_ftf", 1.61, True),
        (PUBLISHED_SHOCKWAVE, "worst_ftf", 2.21, False),
    ],
)
def test_a_figure_is_accepted_within_its_tolerance(
    tolerance: Tolerance, figure: str, here: float, accepted: bool
) -> None:
    assert tolerance.accepts(figure, here, 100.0) is accepted


@pytest.mark.parametrize(("here", "accepted"), [(0.241, True), (0.259, True), (0.261, False)])
def test_the_unfair_fraction_is_held_in_points(here: float, accepted: bool) -> None:
    assert EXACT.accepts("unfair_fraction", here, 0.25) is accepted


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """The first jobs of the public traces, and their tables, to be tampered with."""
    for path in data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    for case in CASES:
        trace = tmp_path / f"{case.name}.trace"
        lines = trace.read_text().splitlines(keepends=True)
        trace.unlink()
        trace.write_text("".join(lines[:3]))
    return tmp_path


def publish(path: Path, rows: list[dict[str, Any]], factor: float) -> None:
    """Write our figures as the published ones, with the mean JCT of the first times a factor."""
    path.unlink()
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, ["trace", "policy", "source", *FIGURES])
        table.writeheader()
        for row in rows:
            figures = {name: row[name] for name in FIGURES}
            figures["mean_jct_s"] *= factor if row is rows[0] else 1.0
            names = {"trace": row["trace"], "policy": row["policy"], "source": "run"}
            table.writerow(names | figures)


@pytest.mark.slow
def test_a_figure_that_is_off_is_reported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conformance, "TOLERANCES", {"gavel": EXACT})
    got = [*conformance.check_conformance(folder)]
    publish(folder / "reference_results.csv", got, factor=1.02)
    rows = conformance.check_conformance(folder)
    assert [(row["trace"], row["policy"], row["ok"]) for row in rows] == [
        ("jobs120_gpus32", "gavel", False),
        ("jobs220_gpus64", "gavel", True),
    ]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("trace,policy\njobs120_gpus32,gavel\n", "is not a table with trace, policy"),
        (
            "trace,policy,source,makespan_s,mean_jct_s,worst_ftf,unfair_fraction\n",
            "has no run of gavel on jobs120_gpus32",
        ),
    ],
)
def test_missing_or_invalid_results_are_named(folder: Path, text: str, said: str) -> None:
    results = folder / "reference_results.csv"
    results.unlink()
    results.write_text(text)
    with pytest.raises(InputError, match=f"^{re.escape(str(results))}: .*{said}"):
        next(conformance.check_conformance(folder))


def test_the_figures_kept_here_are_those_of_the_published_runs(data: Path) -> None:
    with (data / "reference_results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["source"] == "run"]
    with conformance.RESULTS.open() as file:
        kept = [*csv.DictReader(file)]
    assert kept == [{name: row[name] for name in kept[0]} for row in rows]


def test_invalid_results_on_gpu_types_are_named(tmp_path: Path) -> None:
    header = "trace,gpus,policy,makespan_s,mean_jct_s,worst_rho\n"
    (tmp_path / "reference_results.csv").write_text(header + "some,8:16,isolated,1,1,1\n")
    with pytest.raises(InputError, match=r"gpus \(V100:P100:K80\)"):
        next(check_conformance_of_types(tmp_path))
