"""The Prefect server that a campaign starts ends with it."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.up import PROGRAM, descendants, running
from harness.waiting import wait_for
from tests.newcomer import elsewhere, lookups_of, newcomer, terminal
from tests.ui.service import serves
from warehouse.store.campaigns import read_cells
from warehouse.store.files import CellStatus

pytestmark = pytest.mark.prefect

PLAN = """
name = "alone"
policies = ["fifo"]
[settings]
round_seconds = 120
[[workloads]]
name = "drawn"
jobs = {jobs}
[[clusters]]
name = "eight"
gpus = 8
{more}
"""
TOO_SMALL = """
[[clusters]]
name = "one"
gpus = 1
"""


@contextmanager
def started(
    folder: Path, home: Path, plan: str, *options: str
) -> Iterator["subprocess.Popen[str]"]:
    """A campaign without a configured server; it looks up and reaches no other machine."""
    file, lookups = folder / "plan.toml", folder / "lookups"
    file.write_text(plan)
    command = [PROGRAM, "campaign", "run", file, "--driver", "prefect", "--json", *options]
    command += ["--warehouse", folder / "w"]
    with (
        terminal() as shown,
        subprocess.Popen(
            command,
            env=newcomer(home, lookups),
            stdout=shown,
            stderr=subprocess.PIPE,
            text=True,
        ) as campaign,
    ):
        yield campaign
    assert lookups_of(lookups)
    assert elsewhere(lookups) == []
    assert not (home / ".sdk_telemetry" / "notice_shown").exists()


def test_its_one_server_is_stopped_when_a_campaign_has_ended(tmp_path: Path, home: Path) -> None:
    """Also if a cell fails, which is reported in a line, without complaints of Prefect."""
    seen: dict[int, bool] = {}
    plan = PLAN.format(jobs='2\nscale_factors = "8=1"', more=TOO_SMALL)
    with started(tmp_path, home, plan, "--workers", "1") as campaign:

        def ended() -> bool:
            for number in descendants(campaign.pid):
                seen[number] = seen.get(number, False) or serves(number)
            return campaign.poll() is not None

        wait_for(ended, every=0.5)
        assert campaign.stderr
        lines = campaign.stderr.read().splitlines()
    assert campaign.returncode == 1
    assert sum(seen.values()) == 1
    assert running(set(seen)) == set()
    (folder,) = (tmp_path / "w" / "campaigns").glob("alone-*")
    statuses = [row.status for row in read_cells(tmp_path / "w", folder.name)]
    assert statuses == [CellStatus.FINISHED, CellStatus.FAILED]
    (line,) = lines
    assert line.startswith("error: campaign 'alone-")
