"""Runtimes of other packages: the docs page runs, and invalid reports are refused."""

import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import shockwave
from containers.virtual.faithful import FaithfulCluster
from flows.campaigns.cells import CellStarts, expand_cells, finish_cell, make_cell_key
from flows.campaigns.compare import make_comparison
from flows.campaigns.plan import CampaignPlan
from flows.explain.whatif import Change, whatif
from flows.runs.code_version import hash_code
from flows.runs.resuming import resume
from flows.runs.settings import RUNTIMES, VIRTUAL_RUNTIMES, ClusterSize
from flows.runs.simulation import simulate
from flows.runs.start import make_simulation_start
from predictor.errors import InputError, PluginError
from shockwave.testing import check_runtime
from tasks.record import ON_MACHINES, RuntimeKind
from tests.documents import blocks, check_commands
from tests.flows.conftest import Command, assert_refused
from tests.flows.test_own_formats import installed
from warehouse.store.reader import Reader

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "own-runtime.md"


@pytest.fixture
def slower(tmp_path: Path) -> Iterator[Path]:
    """The module of the page, installed."""
    (code, _), (entry, _) = blocks(PAGE, "python"), blocks(PAGE, "toml")
    with installed(tmp_path / "site", "slower", code, entry) as module:
        yield module


def own(warehouse: Path, rounds: int | None = None, runtime: str = "slower") -> str:
    """A run under the page's runtime."""
    source = shockwave.Source(jobs=3, seed=1)
    settings = shockwave.Settings(round_seconds=900.0, runtime=runtime)
    start = make_simulation_start(source, ClusterSize(4), "srtf", settings, warehouse)
    return simulate(start, warehouse, rounds=rounds)


def test_what_is_known_of_runtimes_without_an_import_is_true() -> None:
    assert tuple(RuntimeKind) == RUNTIMES
    assert set(RUNTIMES) - set(VIRTUAL_RUNTIMES) == {*ON_MACHINES}


def test_the_page_runs_as_it_stands(
    slower: Path, here: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "w"))
    assert check_commands(PAGE, here) == 4


def test_the_kit_passes_on_it_and_on_ours(slower: Path) -> None:
    for name in ("slower", *VIRTUAL_RUNTIMES):
        check_runtime(name)
    with pytest.raises(InputError, match="unknown runtime 'slowr'; did you mean slower"):
        check_runtime("slowr")


def test_its_run_is_slower_and_goes_on_to_the_same_end(slower: Path, tmp_path: Path) -> None:
    run, cut = own(tmp_path), own(tmp_path, rounds=4)
    assert Reader(tmp_path).packages(run)[-1].name == "slower"
    resume(cut, tmp_path)
    faithful = own(tmp_path, runtime="faithful")
    runs = shockwave.Warehouse(tmp_path).runs(run, cut, faithful).set_index("run")
    assert runs.loc[run, "last_hash"] == runs.loc[cut, "last_hash"]
    assert runs.loc[run, "makespan_s"] > 1.05 * runs.loc[faithful, "makespan_s"]
    forked = whatif(run, tmp_path, 2, Change(gpus=8))
    assert forked.figures
    begun = own(tmp_path, rounds=4)
    slower.write_text(slower.read_text() + "# another version\n")
    with pytest.raises(InputError, match="install the versions that it began with"):
        resume(begun, tmp_path)
    slower.unlink()
    sys.modules.pop("slower")
    assert shockwave.replay(run, warehouse=tmp_path).differences == []


def test_a_campaign_holds_it_against_ours(slower: Path, tmp_path: Path) -> None:
    _, options = blocks(PAGE, "toml")
    source, settings = shockwave.Source(jobs=3, seed=1), shockwave.Settings(round_seconds=900.0)
    plan = make_comparison("two", source, ClusterSize(4), settings, ["srtf"])
    variants = tomllib.loads(options)["options"]
    plan = CampaignPlan.model_validate({**plan.model_dump(), "options": variants})
    found = {}
    for cell in expand_cells(plan):
        start = CellStarts(tmp_path).start(cell)
        key = make_cell_key(start, hash_code(start.header.settings))
        found[cell.options] = finish_cell(cell, key, tmp_path).hash
    runs = shockwave.Warehouse(tmp_path).runs().set_index("last_hash")
    makespan = {name: runs.loc[digest, "makespan_s"] for name, digest in found.items()}
    assert makespan["slow"] > makespan["usual"]


LIVE = """
class Machines(Slower):
    live = True
    clusters, resume_points = {}, []

    def open(self, terms, resume_point):
        self.resume_points.append(resume_point)
        return self.clusters.setdefault(terms.run, super().open(terms, resume_point))
"""


def test_a_live_runtime_continues_from_its_resume_point(slower: Path, tmp_path: Path) -> None:
    slower.write_text(slower.read_text() + LIVE)
    points = slower.parent / "slower-1.2.dist-info" / "entry_points.txt"
    points.write_text(points.read_text().replace("slower:Slower", "slower:Machines"))
    run, cut = own(tmp_path), own(tmp_path, rounds=4)
    records = [record for record, _ in Reader(tmp_path).records(cut)]
    resume(cut, tmp_path)  # its jobs are where they were
    runs = shockwave.Warehouse(tmp_path).runs(run, cut)
    assert runs["last_hash"].nunique() == 1
    *_, began, stood = sys.modules["slower"].Machines.resume_points
    assert (began.clock_seconds, began.jobs) == (0.0, ())
    assert stood.clock_seconds == records[-1].clock_seconds
    assert stood.leases == {lease.job_id: lease.gpus for lease in records[-1].leases}
    assert stood.started == {lease.job_id for record in records for lease in record.leases}
    with pytest.raises(InputError, match="ran under slower; its rounds cannot be executed"):
        whatif(run, tmp_path, 1, Change(gpus=8))


def observed(change: str) -> str:
    """The module of a runtime that changes the reports of ours by `change`."""
    return f"""
from dataclasses import replace

from containers.virtual.faithful import FaithfulCluster
from predictor.job import EpochLoss
from shockwave import FaithfulFactory, Observation


class Cluster(FaithfulCluster):
    def observe(self):
        seen = super().observe()
        return {change}


class Slower(FaithfulFactory):
    def open(self, terms, resume_point):
        return Cluster(self._truths, terms, resume_point)
"""


TWICE = "tuple(replace(r, epoch=r.epoch + 1) for r in seen.reports)"
LOST = "tuple(EpochLoss(r.job_id, r.epoch{}, {}) for r in seen.reports)"
BACK = "tuple(replace(event, gpus=(3,)) for event in seen.finished)"
WRONG = {
    "1 / 0": "cannot observe its jobs: ZeroDivisionError: division by zero (slower.py:12)",
    "None": "its observation has a NoneType where Observation belongs",
    "replace(seen, progress=list(seen.progress))": "progress, is a list, no tuple",
    "replace(seen, clock_seconds=float('nan'))": "clock_seconds, has the number nan",
    "replace(seen, clock_seconds=900.0 - seen.clock_seconds)": "the clock goes from 900 to 0 s",
    f"replace(seen, reports={TWICE})": "reports epochs 1 to ",
    f"replace(seen, finished={BACK})": "gives back GPUs [3] that it did not hold",
    "replace(seen, finished=tuple(replace(e, job_id=99) for e in seen.finished))": "job 99 is",
    "replace(seen, progress=tuple(replace(p, fraction=7.0) for p in seen.progress))": "done 7",
    f"replace(seen, losses={LOST.format('', 1e300)})": "has a loss of 1e+300",
    f"replace(seen, losses={LOST.format(' - 1', 1.0)})": "has a loss of epoch -1, not reported now",
}
"""Invalid reports, and their errors."""


@pytest.mark.parametrize("change", WRONG)
def test_a_runtime_that_fails_is_named_before_it_is_recorded(
    change: str, slower: Path, here: Command, tmp_path: Path
) -> None:
    slower.write_text(observed(change))
    done = here(
        *("simulate", "--gpus", 4, "--jobs", 3, "--seed", 1, "--runtime", "slower"),
        *("--policy", "srtf", "--round-seconds", 900, "--warehouse", tmp_path / "w"),
    )
    assert_refused(done, "error: runtime 'slower' of slower 1.2: ", WRONG[change])
    assert here("run", "audit", "--all", "--warehouse", tmp_path / "w").code == 0


BROKEN = {
    "import nosuch\n": "cannot be imported: ModuleNotFoundError: No module named 'nosuch'",
    "class Slower:\n    pass\n": "is not a class that inherits shockwave.RuntimeFactory but ",
    "Slower = 3\n": "is not a class that inherits shockwave.RuntimeFactory but 3",
}


@pytest.mark.parametrize("code", BROKEN)
def test_what_is_no_runtime_is_refused_before_anything_is_written(
    code: str, slower: Path, tmp_path: Path
) -> None:
    slower.write_text(code)
    with pytest.raises(PluginError) as refused:
        own(tmp_path / "w")
    assert BROKEN[code] in refused.value.problem
    assert not (tmp_path / "w").exists()


LAZY: dict[str, Callable[..., Any]] = {
    "an epoch twice": lambda seen: replace(seen, reports=seen.reports * 2),
    "no progress": lambda seen: replace(seen, progress=()),
}


@pytest.mark.parametrize("fault", LAZY)
def test_the_kit_finds_what_is_no_runtime(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    observe = FaithfulCluster.observe
    monkeypatch.setattr(
        FaithfulCluster, "observe", lambda self, each=None: LAZY[fault](observe(self))
    )
    with pytest.raises(AssertionError):
        check_runtime("faithful")
