"""A sample of the kills of `harness.attacks.kills`, which covers every boundary."""

import json
import subprocess
import sys

import pytest

from harness.attacks.kills import SCENES


@pytest.mark.process
@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_that_the_next_does_not_mend() -> None:
    command = [sys.executable, "-m", "harness.attacks.kills", "--every", "150", "--json"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["scene"] for row in rows] == [*SCENES]
    assert all(row["kills"] for row in rows)
    assert sum(row["lost"] + row["wrong"] + row["unclean"] + row["left_over"] for row in rows) == 0
