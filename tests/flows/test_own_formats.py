"""Trace formats and throughput models of other packages: the docs pages run; failures."""

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import shockwave
from predictor.plugins import plugins
from shockwave.testing import check_throughputs
from tests.documents import blocks
from tests.flows.conftest import Command, assert_refused
from warehouse.store.reader import Reader

pytestmark = [pytest.mark.process, pytest.mark.slow]

PAGE = Path(__file__).parents[2] / "docs" / "own-trace.md"

TRACE = "0 1 0.5\n60 2 0.25\n"


@contextmanager
def installed(site: Path, module: str, code: str, entry: str) -> Iterator[Path]:
    """A module with an entry point, its file, which this process sees within the context."""
    info = site / f"{module}-1.2.dist-info"
    info.mkdir(parents=True)
    name = module.replace("_", "-")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2\n")
    points = re.sub(r'project\.entry-points\."(.*)"', r"\1", entry).replace('"', "")
    (info / "entry_points.txt").write_text(points)
    file = site / f"{module}.py"
    file.write_text(code)
    with pytest.MonkeyPatch.context() as patched:
        patched.syspath_prepend(site)
        plugins.cache_clear()
        yield file
    plugins.cache_clear()
    sys.modules.pop(module, None)


@pytest.fixture
def spaced(tmp_path: Path) -> Iterator[Path]:
    """The module of the trace reader of the page, installed."""
    (code, _), (entry, _) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    (tmp_path / "jobs.txt").write_text(TRACE)
    with installed(tmp_path / "site", "spaced_trace", code, entry) as module:
        yield module


def test_a_trace_of_ones_own_format_is_read_by_its_name(
    spaced: Path, here: Command, tmp_path: Path
) -> None:
    trace = tmp_path / "jobs.txt"
    asked = ("simulate", "--gpus", 4, "--trace", trace, "--round-seconds", 900)
    kept = ("--warehouse", tmp_path / "w", "--json")
    done = here(*asked, "--format", "spaced", "--seed", 3, *kept)
    (row,) = done.rows
    assert (row["trace"], row["jobs"]) == ("jobs.txt", 2)
    jobs = shockwave.Warehouse(tmp_path / "w").jobs(row["run"])
    assert list(jobs["scale_factor"]) == [1, 2]
    assert list(jobs["arrival_seconds"]) == [0.0, 60.0]
    assert jobs["isolated_seconds"].to_list() == pytest.approx([1_800, 900], rel=0.2)
    spaced.unlink()  # the jobs are in the record
    assert here("run", "replay", row["run"], "--warehouse", tmp_path / "w").code == 0
    for options, error in (
        (("--format", "spaced", "--only", "a=b"), "--only: has no effect on a spaced trace"),
        (
            ("--format", "spacd"),
            "--format: unknown format 'spacd'; did you mean spaced? choose from public, ",
        ),
    ):
        assert_refused(here(*asked, *options, *kept), f"error: {error}")


READERS = {
    "raise OSError('no such disk')": "cannot read *: OSError: no such disk (spaced_trace.py:9)",
    "return 3": "cannot read *: TypeError: 'int' object is not iterable",
    "return []": "found no jobs in *",
    "return [1]": "read *, of which job 0 is a int, no TableJob",
    "return [TableJob(0.0, 60.0, 1), TableJob(0.0, 60.0, 0)]": "job 1 has 0 GPUs",
    "return [TableJob(0.0, -1.0, 1)]": "job 0 runs for -1.0 s",
    "return [TableJob(0.0, None, 1)]": "job 0 runs for None s",
    "return [TableJob(float('nan'), 1.0, 1)]": "job 0 arrives at nan s",
    "return [TableJob('0', 1.0, 1)]": "job 0 arrives at '0' s",
    "return [TableJob(0.0, 1.0, 1, name='a' * 101)]": "no printable text of at most 100",
    "return [TableJob(0.0, 1.0, 1, tenant=3)]": "job 0 has a tenant or a model that is not text",
}
"""Last lines of a reader, and the error; * stands for the trace."""


@pytest.mark.parametrize("body", READERS)
def test_a_reader_that_fails_is_named(
    body: str, spaced: Path, here: Command, tmp_path: Path
) -> None:
    text = spaced.read_text().partition("    lines =")[0]
    spaced.write_text(f"{text}    {body}\n")
    trace = tmp_path / "jobs.txt"
    done = here(
        *("simulate", "--gpus", 4, "--trace", trace, "--format", "spaced"),
        *("--warehouse", tmp_path / "w"),
    )
    said = READERS[body].replace("*", str(trace))
    assert_refused(done, "error: format 'spaced' of spaced-trace 1.2: ", said)
    assert not (tmp_path / "w").exists()


@pytest.fixture
def amdahl(tmp_path: Path) -> Iterator[Path]:
    """The module of the throughput model of the page, installed."""
    (_, code), (_, entry) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    with installed(tmp_path / "site", "amdahl", code, entry) as module:
        yield module


def test_a_throughput_model_of_ones_own_is_recorded_as_its_table(
    amdahl: Path, here: Command, tmp_path: Path
) -> None:
    assert here("workload", "generate", tmp_path / "t", "--jobs", 4).code == 0
    trace = tmp_path / "t" / "jobs.trace"
    check_throughputs("amdahl", trace)
    asked = ("simulate", "--gpus", 4, "--trace", trace, "--round-seconds", 3600)
    kept = ("--warehouse", tmp_path / "w")
    (row,) = here(*asked, "--profile", "amdahl", *kept, "--json").rows
    profile = Reader(tmp_path / "w").header(row["run"]).profile
    assert profile
    for measurement in profile:
        expected = 500 / (0.05 + 0.95 / measurement.gpus) / (measurement.batch_size + 32)
        assert (measurement.gpu_type, measurement.steps_per_second) == (
            "v100",
            pytest.approx(expected),
        )
    (tmp_path / "c.toml").write_text(
        'name = "own"\npolicies = ["fifo"]\nseeds = [1]\n'
        '[[workloads]]\nname = "w"\ntrace = "t/jobs.trace"\nprofile = "amdahl"\n'
        '[[clusters]]\nname = "c"\ngpus = 4\n'
    )
    (workload,) = shockwave.Campaign.read(tmp_path / "c.toml", tmp_path / "w").plan.workloads
    assert str(workload.profile) == "amdahl"
    amdahl.unlink()  # its table is in the record
    assert here("run", "replay", row["run"], *kept).code == 0
    refused = here(*asked, "--profile", "amdal", *kept)
    assert_refused(refused, "amdal: No such file or directory")


def test_a_throughput_model_knows_several_gpu_types(
    amdahl: Path, here: Command, tmp_path: Path
) -> None:
    twice = "return 500.0 * speedup * (1 + (allocation.gpu_type == 'a100'))"
    text = amdahl.read_text().replace('("v100",)', '("v100", "a100")')
    amdahl.write_text(text.replace("return 500.0 * speedup", twice))
    drawn = ("--jobs", 2, "--scale-factors", "1=1")
    assert here("workload", "generate", tmp_path / "t", *drawn).code == 0
    asked = ("--trace", tmp_path / "t" / "jobs.trace", "--profile", "amdahl", "--policy", "fifo")
    (row,) = here(
        *("simulate", "--pools", "v100:2x1,a100:1x1", *asked, "--round-seconds", 3600),
        *("--warehouse", tmp_path / "w", "--json"),
    ).rows
    rates: dict[tuple[str, int], dict[str, float]] = {}
    for measurement in Reader(tmp_path / "w").header(row["run"]).profile:
        rates.setdefault((measurement.model, measurement.batch_size), {})[measurement.gpu_type] = (
            measurement.steps_per_second
        )
    assert rates
    assert all(of["a100"] == 2 * of["v100"] for of in rates.values())


MODELS = {
    "raise OSError('no such disk')": "cannot tell the rate of * OSError: no such disk (amdahl.py:",
    "return None": "a rate of None steps per second",
    "return -1.0": "a rate of -1.0 steps per second",
    "return float('inf')": "a rate of inf steps per second",
    "return 1.0 + job.job_id": "two rates; a rate may depend on these only",
}
"""Last lines of a model, and the error; * stands for a job and its allocation."""


@pytest.mark.parametrize("body", MODELS)
def test_a_throughput_model_that_fails_is_named(
    body: str, amdahl: Path, here: Command, tmp_path: Path
) -> None:
    amdahl.write_text(amdahl.read_text().partition("        speedup =")[0] + f"        {body}\n")
    assert here("workload", "generate", tmp_path / "t", "--jobs", 20).code == 0
    asked = ("--trace", tmp_path / "t" / "jobs.trace", "--profile", "amdahl")
    done = here("simulate", "--gpus", 8, *asked, "--warehouse", tmp_path / "w")
    said = MODELS[body].split("*")
    assert_refused(done, "error: throughput model 'amdahl' of amdahl 1.2: ", *said)
    assert not (tmp_path / "w").exists()
