"""Figures for papers have the width that was asked for, whatever their legends and labels."""

import re
from pathlib import Path

import pytest

from predictor.errors import InputError
from tests.runs import ended, write
from warehouse.analytics.questions import Analytics
from warehouse.report import read_report
from warehouse.report.figure import make_scale
from warehouse.report.paper import write_pdfs


@pytest.mark.slow
def test_a_pdf_has_the_width_that_was_asked_for(tmp_path: Path) -> None:
    made = ended("srtf", jobs=4)
    run = write(tmp_path, made.start, made.rounds)
    figures = read_report(Analytics(tmp_path), run).figures
    drawn = [figure for figure in figures if figure.chart is not None]
    for file in write_pdfs(drawn, tmp_path / "pdf", 3.3):
        box = re.search(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", file.read_bytes())
        assert box, file
        assert float(box[1]) == pytest.approx(237.6, abs=1.0), file.name
        assert 40.0 < float(box[2]) < 800.0, file.name


@pytest.mark.slow
def test_each_choice_of_a_figure_is_a_file_of_its_own(tmp_path: Path) -> None:
    made = ended("srtf", jobs=4)
    run = write(tmp_path, made.start, made.rounds)
    (figure,) = (f for f in read_report(Analytics(tmp_path), run).figures if "fairness" in f.key)
    names = [file.name for file in write_pdfs([figure], tmp_path / "pdf")]
    assert names[0] == f"{figure.key}.pdf"
    assert len({*names}) == len(figure.specs) > 1


def test_a_width_out_of_bounds_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"inches: 0 is out of range; give 2 to 20, such as 3\.3"):
        write_pdfs([], tmp_path, 0.0)


def test_an_axis_is_logarithmic_if_a_tail_would_squeeze_the_rest() -> None:
    linear = {"zero": True}
    assert make_scale([1.0, 2.0, 100.0], zero=True).to_dict() == {"type": "log"}
    assert make_scale([1.0, 2.0, 30.0], zero=True).to_dict() == linear
    assert make_scale([0.0, 2.0, 100.0], zero=True).to_dict() == linear  # 0 has no logarithm
