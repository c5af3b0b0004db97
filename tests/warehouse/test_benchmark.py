"""The cookbook's benchmark makes a warehouse of which every recipe has an answer."""

import sys
from pathlib import Path

import pytest

from benchmarks import cookbook
from benchmarks.generated import SPAN, WHOLE, generate
from warehouse.analytics.questions import Analytics
from warehouse.analytics.recipes import recipe, recipes

pytestmark = pytest.mark.slow

SMALLEST = (4, SPAN, 4)
"""A run of each policy, a span of rounds, a slot for each size of a gang."""


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("benchmark") / "warehouse"
    generate(folder, *SMALLEST)
    return folder


@pytest.mark.parametrize("name", [found.name for found in recipes()])
def test_every_recipe_has_an_answer(warehouse: Path, name: str) -> None:
    run = cookbook.ASKED if recipe(name).of_one_run else None
    _, rows = Analytics(warehouse).recipe(name, run)
    assert bool(rows) == (name != "lost-by-type")  # which is of runs on several GPU types


def test_a_half_made_warehouse_is_not_used(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = tmp_path / "half"
    monkeypatch.setattr(sys, "argv", ["cookbook.py", "--warehouse", str(half), "--rounds", "7"])
    for said in ("is no multiple of", "was left half made"):
        with pytest.raises(SystemExit, match=said):
            cookbook.main()
    assert not (half / WHOLE).exists()
    assert (warehouse / WHOLE).exists()
