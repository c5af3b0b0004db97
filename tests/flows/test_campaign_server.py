"""The Prefect server that a campaign starts for itself: it obeys nobody else and goes with it."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from harness.up import PROGRAM, descendants, running
from harness.waiting import HANG_SECONDS, wait_for
from tests.newcomer import elsewhere, lookups_of, newcomer, terminal
from tests.ui.attacks import ask, attacked
from tests.ui.service import own_server, serves
from warehouse.store.campaigns import read_cells
from warehouse.store.files import CellStatus
from warehouse.store.folder import present

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
    """A campaign that is told of no server; it looks up and reaches no other machine."""
    file, lookups = folder / "plan.toml", folder / "lookups"
    file.write_text(plan)
    command = [PROGRAM, "campaign", file, "--warehouse", folder / "w", "--json", *options]
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


def test_a_campaign_s_server_obeys_nobody_else_and_nothing_outlives_a_kill(
    tmp_path: Path, home: Path
) -> None:
    records = "run=fifo-*/round=*.parquet"  # its worker has told of itself by then
    plan = PLAN.format(jobs=2000, more="")
    with started(tmp_path, home, plan, "--workers", "1") as campaign:

        def at_work() -> bool:
            assert campaign.poll() is None, campaign.communicate()
            return any(present(tmp_path / "w").glob(records))

        wait_for(at_work)
        server = own_server(campaign.pid, home)
        attacked(server)
        assert ask(server, "GET", "/reports/")[0] in (401, 404)  # it hands out none
        left = descendants(campaign.pid)
        campaign.kill()
        assert campaign.wait(HANG_SECONDS) == -signal.SIGKILL
    assert len(left) >= 2  # the worker too
    assert wait_for(lambda: running(left), lambda still: not still) == set()


def test_its_one_server_is_stopped_when_a_campaign_has_ended(tmp_path: Path, home: Path) -> None:
    """Also where a cell fails; of that there is a line, and Prefect complains of nothing."""
    seen: dict[int, bool] = {}
    plan = PLAN.format(jobs=2, more=TOO_SMALL)
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
