"""The library: its docs page runs, names are cheap to import and all documented."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from prefect.client.orchestration import SyncPrefectClient

import shockwave
from tests.documents import check_python
from tests.flows.conftest import Finished
from tests.flows.served import SECRET, served
from tests.flows.test_scheduler import JOB, go
from warehouse.store.labelling import name_run

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "library.md"
ROUGH = shockwave.Settings(round_seconds=3600)


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # Prefect's threads leave sockets to the interpreter's end
def test_the_page_runs_as_it_stands(
    client: SyncPrefectClient,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    elsewhere = tmp_path_factory.mktemp("service")
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "warehouse"))
    monkeypatch.chdir(tmp_path)
    go(elsewhere, 1, jobs=[JOB])
    with served(elsewhere) as url:
        monkeypatch.setenv("SHOCKWAVE_URL", url)
        monkeypatch.setenv("SHOCKWAVE_TOKEN", SECRET)
        assert check_python(PAGE) > 10
    assert {path.name for path in tmp_path.iterdir()} == {"warehouse", "column", "page"}
    for folder, points in (("column", 237.6), ("page", 504)):
        for file in (tmp_path / folder).iterdir():
            drawn = file.read_bytes()
            (box,) = re.findall(rb"/MediaBox \[0 0 ([\d.]+) [\d.]+\]", drawn)
            assert float(box) == pytest.approx(points, abs=0.05), file
            assert b"/FontFile2" in drawn, "TrueType"
            assert b"/Type3" not in drawn


def test_every_name_is_there_and_on_the_page() -> None:
    promised = PAGE.read_text(encoding="utf-8").partition("## What is promised")[2]
    for name in shockwave.__all__:
        assert getattr(shockwave, name).__doc__, name
        assert f"`{name}`" in promised, name
    assert dir(shockwave) == shockwave.__all__
    assert shockwave.__version__ in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    with pytest.raises(AttributeError, match="has no attribute 'simulat'"):
        _ = shockwave.simulat


@pytest.mark.slow
def test_a_run_may_be_given_by_its_name(
    finished: Finished,
    copied: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    name_run(copied, finished.run, "Baseline")
    here: Any = {"warehouse": copied}
    records = shockwave.Warehouse(copied)
    assert records.runs("Baseline")["run"].tolist() == [finished.run]
    assert set(records.jobs("Baseline")["run"]) == {finished.run}
    assert records.arrow("SELECT run FROM runs", "Baseline").num_rows == 1
    assert shockwave.why(1, "Baseline", 2, **here).run == finished.run
    assert shockwave.audit("Baseline", **here).run == finished.run
    assert shockwave.replay("Baseline", **here).differences == []
    seen = list[tuple[int, int]]()
    here["progress"] = lambda done, total: seen.append((done, total))
    assert shockwave.whatif("Baseline", 3, shockwave.Change(gpus=8), **here).figures
    learned = shockwave.simulate(
        shockwave.Source(jobs=1), gpus=4, history=["Baseline"], settings=ROUGH, **here
    )
    assert seen[-1] == (1, 1)
    assert capfd.readouterr() == ("", "")
    assert learned != finished.run
    with pytest.raises(shockwave.InputError, match="did you mean distributions"):
        shockwave.figures("Baseline", tmp_path / "figures", only=["distribtions"], **here)


HEAVY = ("numpy", "pandas", "duckdb", "prefect", "pydantic", "flows", "solver", "warehouse")


@pytest.mark.process
def test_importing_it_imports_nothing() -> None:
    code = f"import shockwave, sys; print(sorted({set(HEAVY)} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
