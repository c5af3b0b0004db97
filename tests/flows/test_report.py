"""The command `report`."""

from pathlib import Path

import pytest

import shockwave
from flows.deployments.forms import ReportForm
from flows.deployments.reporting import write_report
from predictor.errors import InputError
from tests.flows.conftest import Command, Finished, assert_refused, tree
from warehouse.report.output import check_replaced

pytestmark = pytest.mark.slow


def test_a_page_is_written_and_its_path_printed(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    out = tmp_path / "page.html"
    ran = here(
        *("report", finished.run, "--warehouse", finished.warehouse),
        *("--out", out, "--figures", tmp_path / "figures", "--json"),
        *("--only", "load,fairness", "--formats", "svg,pdf"),
    )
    assert (ran.code, ran.err) == (0, "")
    (row,) = ran.rows
    assert row["report"] == str(out)
    assert row["bytes"] == out.stat().st_size
    assert row["runs"] == [finished.run]
    assert "<h1>Shockwave: shockwave</h1>" in out.read_text()
    assert sorted(map(Path, row["figures"])) == sorted((tmp_path / "figures").iterdir())
    assert {path.suffix for path in map(Path, row["figures"])} == {".svg", ".pdf"}
    assert {
        path.name.partition("-")[0].partition(".")[0] for path in map(Path, row["figures"])
    } == {
        "load",
        "fairness",
    }
    title = (tmp_path / "figures" / "load.svg").read_text()
    assert "How busy was the cluster?" in title
    assert finished.run not in title


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--only", "lod"], "--only: restricts the figures of --figures; add --figures FOLDER"),
        (["--formats", "svg,tif"], "--formats: unknown format 'tif'; choose from svg, png, pdf"),
    ],
)
def test_a_choice_of_figures_that_has_no_meaning_is_refused(
    here: Command, finished: Finished, options: list[str], said: str
) -> None:
    assert_refused(here("report", finished.run, "--warehouse", finished.warehouse, *options), said)


def test_a_folder_gets_a_file_named_after_the_run(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    before = tree(finished.warehouse)
    ran = here("report", finished.run, "--warehouse", finished.warehouse, "--out", tmp_path)
    (page,) = tmp_path.iterdir()
    assert page.name == f"{finished.run}.html"
    assert ran.out == f"{page}: {page.stat().st_size / 1e6:.1f} MB\n"
    assert tree(finished.warehouse) == before
    check_replaced(page)


def test_a_file_that_is_no_report_is_not_replaced(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    (tmp_path / "jobs.trace").write_text("mine")
    (tmp_path / "empty.html").touch()
    options = ["--warehouse", finished.warehouse, "--out", tmp_path / "jobs.trace"]
    ran = here("report", finished.run, *options)
    said = f"{tmp_path / 'jobs.trace'}: exists and is not a report; name another file"
    assert_refused(ran, said)
    with pytest.raises(InputError, match="exists and is not a report"):
        shockwave.report(finished.run, tmp_path / "jobs.trace", warehouse=finished.warehouse)
    assert tree(tmp_path) == {"jobs.trace": b"mine", "empty.html": b""}
    check_replaced(tmp_path / "empty.html")


def test_the_command_and_the_flow_name_a_page_alike(
    here: Command, finished: Finished, copied: Path
) -> None:
    about = ",".join([finished.run] * 8)
    ran = here("report", about, "--warehouse", copied, "--json")
    (row,) = ran.rows
    page = Path(row["report"])
    assert page.parent == copied / "reports"
    page.unlink()
    assert write_report.fn(ReportForm(about=about), copied).page == page
    assert page.is_file()
    with pytest.raises(InputError, match=r"^against: 'nope' is none of the policies"):
        write_report.fn(ReportForm(about=about, against="nope"), copied)


def test_what_is_unknown_is_refused_in_one_line(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    for name in ("nope", f"{finished.run},nope", "../x"):
        ran = here("report", name, "--warehouse", finished.warehouse, "--out", tmp_path / "x.html")
        assert_refused(ran, "error: run or campaign '")
    assert not list(tmp_path.iterdir())


def test_a_place_that_cannot_be_written_is_refused(
    here: Command, finished: Finished, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    ran = here(
        *("report", finished.run, "--warehouse", finished.warehouse),
        *("--out", tmp_path / "file" / "x.html"),
    )
    assert_refused(ran, "cannot be written")
