"""Gavel's policies on GPU types reproduce the results of Gavel's simulator."""

import csv
import math
from pathlib import Path

import pytest

from flows.runs import simulation
from harness.conformance_of_types import (
    POLICIES,
    RESULTS,
    YARDSTICK,
    check_conformance_of_types,
)

CHEAP = "static_single_71"

EXACT = ("isolated", "max_min_fairness_perf", "fifo_perf", "fifo_packed")
"""Whose figures are those of the published simulator to the last digit that is published."""


DEAR = ("gandiva", "max_min_fairness_packed")
"""Whose runs take seconds of processor time; `benchmarks.conformance` has them."""


@pytest.fixture
def folder(data: Path, tmp_path: Path) -> Path:
    """Gavel's data, with the published results of the cheapest trace alone."""
    whole = data.parent / "gavel"
    if not whole.is_dir():
        pytest.skip("no data of Gavel beside the public traces")
    for path in whole.iterdir():
        (tmp_path / path.name).symlink_to(path)
    results = tmp_path / RESULTS
    lines = results.read_text().splitlines(keepends=True)
    results.unlink()
    kept = [line for line in lines if line.startswith(("trace,", CHEAP))]
    results.write_text("".join(line for line in kept if line.split(",")[2] not in DEAR))
    return tmp_path


def test_policies_of_gavels_simulator_get_the_published_figures(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(simulation, "DELAY_SECONDS", math.inf)  # its records go with it
    with (folder / RESULTS).open() as file:
        published = [row["policy"] for row in csv.DictReader(file) if row["policy"] in POLICIES]
    rows = list(check_conformance_of_types(folder))
    assert [row for row in rows if not row["ok"]] == []
    assert {row["policy"] for row in rows} == set(published)
    assert rows[0]["policy"] == YARDSTICK
    for row in rows:
        if row["policy"] in EXACT:
            assert float(str(row["makespan_s"])) == pytest.approx(
                row["makespan_s_published"], abs=0.1
            )
            assert float(str(row["worst_rho"])) == pytest.approx(
                row["worst_rho_published"], rel=1e-4
            )
