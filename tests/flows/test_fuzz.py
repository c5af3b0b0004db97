"""A sample of the inputs of `harness.attacks.fuzz`: one of each format."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.attacks.fuzz import FORMATS
from harness.waiting import HANG_SECONDS


@pytest.mark.slow
@pytest.mark.process
def test_mutated_files_and_arguments_are_refused_in_a_line_or_taken() -> None:
    inputs = len(FORMATS)
    ran = subprocess.run(  # forks, which a process with threads should not
        [sys.executable, "-m", "harness.attacks.fuzz", f"--inputs={inputs}", "--json"],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )
    assert (ran.returncode, ran.stderr) == (0, "")
    *rows, total = map(json.loads, ran.stdout.splitlines())
    assert [row["format"] for row in rows] == list(FORMATS)
    assert {row["inputs"] for row in rows} == {1}
    assert total["refused"] + total["accepted"] + total["found"] == inputs
    assert min(total["refused"], total["accepted"]) > 0
