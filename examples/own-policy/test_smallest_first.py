"""What must hold of every policy holds of this one, and small gangs wait less."""

from pathlib import Path

from shockwave import Source, Warehouse, simulate
from shockwave.testing import check_policy


def test_it_is_a_policy() -> None:
    check_policy("smallest-first")


def test_small_gangs_wait_less(tmp_path: Path) -> None:
    source = Source(jobs=10, seed=3)
    run = simulate(source, gpus=8, policy="smallest-first", warehouse=tmp_path)
    waited = Warehouse(tmp_path).jobs(run).groupby("scale_factor")["waiting_seconds"].mean()
    assert waited.iloc[0] < waited.iloc[-1]
