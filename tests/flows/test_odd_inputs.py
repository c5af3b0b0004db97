"""Odd files and names are refused at once, with what to do instead."""

import os
from pathlib import Path

import pytest

from flows.runs.workload_source import Source
from predictor.errors import InputError
from tests.flows.conftest import Command
from warehouse.workloads.kinds import Format


@pytest.mark.parametrize("format_", Format)
@pytest.mark.parametrize("kind", ["device", "pipe"])
def test_what_never_ends_is_not_read(tmp_path: Path, format_: Format, kind: str) -> None:
    path = Path("/dev/zero")
    if kind == "pipe":
        path = tmp_path / "fifo"
        os.mkfifo(path)
    more = {"columns": "arrival=a,duration=b,gpus=c"} if format_ == "table" else {}
    profile = {"profile": path} if format_ == "public" else {}
    with pytest.raises(InputError, match="is a device or a pipe; write it to a file first"):
        Source(trace=path, format=format_, **more, **profile).open()  # type: ignore[arg-type]


def test_a_misspelt_policy_comes_before_all_else(here: Command, tmp_path: Path) -> None:
    kept = ("--warehouse", tmp_path, "--gpus", 4)
    done = here("simulate", "--policy", "fido", "--trace", tmp_path / "no", *kept)
    assert done.code == 2
    assert "--policy: unknown policy 'fido'; did you mean fifo?" in done.err
    done = here("compare", "--policies", "srtf,fido", *kept)
    assert done.code == 2
    assert "--policies: unknown policy 'fido'; did you mean fifo?" in done.err


def test_a_policy_is_compared_once(here: Command, tmp_path: Path) -> None:
    done = here("compare", "--policies", "fifo,fifo", "--warehouse", tmp_path, "--gpus", 4)
    assert done.code == 2
    assert "--policies: 'fifo' is there twice; name each policy once" in done.err


def test_generated_jobs_fit_a_small_cluster_by_default() -> None:
    small = Source().open(gpus=4)
    assert max(spec.demand.least for spec in small.specs) == 4
    assert small.source.endswith("scale factors 1=0.6 2=0.3 4=0.09")
    assert Source().open(gpus=8) == Source().open()
    asked = Source(scale_factors="8=1", jobs=1).open(gpus=4)
    assert asked.specs[0].demand.least == 8
