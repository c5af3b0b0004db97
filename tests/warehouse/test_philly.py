"""The compact Philly table is a job table with known columns."""

from pathlib import Path

import numpy as np
import pytest

from predictor.errors import InputError
from warehouse.workloads.philly import read_philly

HEADER = "timestamp,duration,num_gpus,gpu_time,cluster"


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "philly.csv"
    lines = ["1507000100,7200,4,28800,one", "1507000000,3600,3,10800,two", "1507000160,90,0,0,one"]
    path.write_text("\n".join([HEADER, *lines]))
    return path


def test_one_cluster_without_the_lines_that_have_no_gpus(table: Path) -> None:
    rng = np.random.default_rng(1)
    workload = read_philly(table, rng=rng, only={"cluster": "one"}, skip_unusable=True)
    (spec,), (truth,) = workload.specs, workload.truths
    assert workload.source == "philly.csv, cluster=one, 1 line skipped"
    assert (spec.demand.least, spec.arrival_seconds) == (4, 0.0)
    assert truth.isolated_seconds == pytest.approx(7_200, abs=60)


def test_all_clusters_by_arrival(table: Path) -> None:
    workload = read_philly(table, rng=np.random.default_rng(1), skip_unusable=True)
    found = [(spec.job_id, spec.arrival_seconds, spec.demand.least) for spec in workload.specs]
    assert found == [(1, 0.0, 3), (0, 100.0, 4)]


def test_a_line_without_gpus(table: Path) -> None:
    with pytest.raises(InputError) as caught:
        read_philly(table, rng=np.random.default_rng(1))
    assert str(caught.value) == (
        f"{table}:4, num_gpus: the job has no GPUs; leave the line out or skip unusable ones"
    )


def test_a_missing_column(table: Path) -> None:
    table.write_text("cluster\none\n")
    with pytest.raises(InputError) as caught:
        read_philly(table, rng=np.random.default_rng(1))
    assert str(caught.value) == (f"{table}:1: missing column 'timestamp'; the header has cluster")
