"""The notebook shows the figures of a report."""

import runpy
from pathlib import Path

import pytest

from flows.explain.whatif import Change, whatif
from tests.runs import ended, write
from warehouse.analytics.catalog import build
from warehouse.analytics.marts import materialise
from warehouse.analytics.questions import Analytics
from warehouse.report import read_report

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "notebooks" / "history.py"


@pytest.fixture(scope="module")
def warehouse(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("warehouse")
    for policy in ("srtf", "shockwave"):
        made = ended(policy, jobs=4)
        write(folder, made.start, made.rounds)
    materialise(folder)  # so that marts are read in a tenth of the time
    return folder


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_its_figures_are_those_of_the_report(
    warehouse: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from marimo._output.formatters.formatters import register_formatters  # half a second

    register_formatters()  # as in a browser: what cannot be shown fails here, too
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(warehouse))
    app = runpy.run_path(str(NOTEBOOK))["app"]
    _, values = app.run()
    *drawn, forked = capsys.readouterr().out.splitlines()  # as where it is run as a program
    assert drawn[0].startswith("fairness-shockwave-")
    assert [line.endswith(" drawn") for line in drawn] == [True] * 8
    assert forked.startswith("forked at round ")
    assert forked.endswith(": 4 jobs on 16 GPUs")
    analytics = Analytics(warehouse)
    first = analytics.query("SELECT run FROM runs ORDER BY run")[1][0][0]
    asked = read_report(analytics, [first]).figures
    assert values["chosen"].value == first
    assert [figure.key for figure in values["figures"]] == [figure.key for figure in asked]
    jobs = {row["run"] for row in values["compared"].data.to_dict("records")}
    assert jobs == set(values["history"]["run"])
    at, doubled = values["at"].value, Change(gpus=2 * values["history"]["gpus"][0])
    assert values["outcome"].figures == whatif(first, warehouse, at, doubled).figures
    for shown, figure in zip(values["figures"], asked, strict=True):
        assert (shown.chart is None) == (figure.chart is None)
        assert shown.specs == figure.specs


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("there", [False, True])
def test_where_there_is_no_run_it_says_so(
    tmp_path: Path,
    there: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if there:
        build(tmp_path / "none")
    monkeypatch.setenv("SHOCKWAVE_WAREHOUSE", str(tmp_path / "none"))
    runpy.run_path(str(NOTEBOOK), run_name="__main__")
    assert capsys.readouterr().out == "No run yet: start one with shockwave simulate.\n"
