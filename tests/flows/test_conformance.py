"""The conformance command: its tolerances, its exit codes, its errors."""

import csv
from pathlib import Path

import pytest

from flows.judging import conformance
from flows.judging.conformance import EXACT, PUBLISHED_SHOCKWAVE, Tolerance
from tests.flows.conftest import Command
from tests.flows.test_cli import assert_refused


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
    """The public traces, to be tampered with."""
    for path in data.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def change(path: Path, column: str, factor: float) -> None:
    """Multiply a column of the results of the 120-job trace."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    path.unlink()
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, rows[0])
        table.writeheader()
        for row in rows:
            if row["trace"] == "jobs120_gpus32":
                row[column] = str(float(row[column]) * factor)
            table.writerow(row)


@pytest.mark.slow
def test_a_figure_that_is_off_is_told_and_exits_with_1(
    here: Command, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "TOLERANCES", {"gavel": EXACT})  # the others take long
    change(folder / "reference_results.csv", "mean_jct_s", 1.02)
    ran = here("conformance", folder, "--json")
    assert (ran.code, ran.err) == (1, "")
    assert [(row["trace"], row["policy"], row["ok"]) for row in ran.rows] == [
        ("jobs120_gpus32", "gavel", False),
        ("jobs220_gpus64", "gavel", True),
    ]


def test_what_is_missing_or_wrong_is_named(here: Command, folder: Path) -> None:
    results = folder / "reference_results.csv"
    results.unlink()
    assert_refused(here("conformance", folder), str(results), "give the folder")
    results.write_text("trace,policy\njobs120_gpus32,gavel\n")
    assert_refused(here("conformance", folder), str(results), "is not a table with trace, policy")
    results.write_text("trace,policy,source,makespan_s,mean_jct_s,worst_ftf,unfair_fraction\n")
    assert_refused(here("conformance", folder), "has no run of gavel on jobs120_gpus32")
