"""Figures for papers are as wide as asked, whatever their legends and labels."""

from pathlib import Path

import pytest

from predictor.errors import InputError
from tests.runs import ended, write
from warehouse.analytics.questions import Analytics
from warehouse.report import report_of
from warehouse.report.pdf import _width, fitted, write_pdfs


@pytest.mark.slow
def test_a_figure_fills_the_width_and_no_more(tmp_path: Path) -> None:
    made = ended("srtf", jobs=4)
    run = write(tmp_path, made.start, made.rounds)
    for figure in report_of(Analytics(tmp_path), [run]).figures:
        for spec in figure.specs.values() if figure.key.startswith("gantt") else ():
            drawn = fitted(spec, 237.6)
            white = drawn["padding"]["right"]
            assert _width(drawn) == pytest.approx(237.6, abs=0.5), figure.key
            assert 2.0 <= white < 30.0, f"{figure.key}: {white} points of white"


@pytest.mark.slow
def test_each_choice_of_a_figure_is_a_file_of_its_own(tmp_path: Path) -> None:
    made = ended("srtf", jobs=4)
    run = write(tmp_path, made.start, made.rounds)
    (figure,) = (f for f in report_of(Analytics(tmp_path), run).figures if "fairness" in f.key)
    names = [file.name for file in write_pdfs([figure], tmp_path / "pdf")]
    assert names[0] == f"{figure.key}.pdf"
    assert len({*names}) == len(figure.specs) > 1


def test_a_width_out_of_bounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"inches: 0 is out of range; give 2 to 20, such as 3\.3"):
        write_pdfs([], tmp_path, 0.0)
