"""The benchmark of rounds measures what it is asked to, or says why it cannot."""

import json
import sys
from pathlib import Path

import pytest

from benchmarks import rounds
from tests.applications import FILES, write_applications, write_jobs


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("--elastic a,b", "--elastic with several workloads needs --jobs"),
        ("--elastic a --rounds 5", "--rounds with --elastic needs --jobs"),
        ("--mixed", "--mixed needs --elastic"),
        ("--jobs 2 --gpus 8 --policy fifo --rounds 0", "nothing is measured in the first 3 rounds"),
        ("--elastic a", "pollux is no folder"),
    ],
)
def test_what_cannot_be_measured_is_refused(
    asked: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SHOCKWAVE_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["rounds", *asked.split()])
    with pytest.raises(SystemExit) as ended:
        rounds.main()
    assert ended.value.code == 2
    assert said in capsys.readouterr().err


def test_a_workload_is_measured_after_its_first_rounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    limits, toy = FILES["applications.csv"]
    short = toy.removesuffix(",2") + ",1"  # its only epoch ends in the second round
    folder = write_applications(tmp_path / "pollux", applications=(limits, short))
    (folder / "workloads").mkdir()
    jobs = ["a,0,toy,2,20", "b,900,toy,2,20"]
    for name, count in (("one", 1), ("two", 2)):
        write_jobs(folder, *jobs[:count]).rename(folder / "workloads" / f"{name}.csv")
    monkeypatch.setenv("SHOCKWAVE_DATA", str(tmp_path))
    command = ["rounds", "--policy", "fifo", "--json", "--elastic"]
    monkeypatch.setattr(sys, "argv", [*command, "two"])
    rounds.main()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last["step"] == "round"
    assert last["rounds"] > 0
    monkeypatch.setattr(sys, "argv", [*command, "one"])
    with pytest.raises(SystemExit):
        rounds.main()
    assert "nothing is measured in the first 3 rounds" in capsys.readouterr().err
