"""The Prefect server that a campaign starts for itself goes with it, however it ends."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.ui.service import descendants, outside, running
from tests.waiting import HANG_SECONDS, wait_for
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
ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prefect's, whose database the first server makes."""
    return tmp_path_factory.mktemp("home")


def started(folder: Path, home: Path, plan: str, *options: str) -> subprocess.Popen[str]:
    """A campaign that is told of no server."""
    file = folder / "plan.toml"
    file.write_text(plan)
    env = outside(home) | {"PYTHONPATH": str(ROOT)}
    program = [sys.executable, "-c", "from flows.cli.main import main; main()"]
    return subprocess.Popen(
        [*program, "campaign", str(file), "--warehouse", str(folder / "w"), "--json", *options],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_nothing_outlives_a_campaign_that_is_killed(tmp_path: Path, home: Path) -> None:
    records = "run=*/round=00003*.parquet"  # its worker has told of itself by then
    plan = PLAN.format(jobs=200, more="")
    with started(tmp_path, home, plan, "--workers", "1") as campaign:

        def at_work() -> bool:
            assert campaign.poll() is None, campaign.communicate()
            return any(present(tmp_path / "w").glob(records))

        wait_for(at_work)
        left = descendants(campaign.pid)
        servers = [number for number in left if serves(number)]
        campaign.kill()
        assert campaign.wait(HANG_SECONDS) == -signal.SIGKILL
    assert len(servers) == 1
    assert len(left) >= 2  # the worker too
    assert wait_for(lambda: running(left), lambda still: not still) == set()


@pytest.mark.parametrize(
    ("runner", "more", "said"),
    [("processes", "", ""), ("threads", TOO_SMALL, "error: campaign 'alone-")],
    ids=["processes", "threads, and a cell fails"],
)
def test_its_one_server_is_stopped_when_a_campaign_has_ended(
    tmp_path: Path, home: Path, runner: str, more: str, said: str
) -> None:
    seen: dict[int, bool] = {}
    plan = PLAN.format(jobs=9, more=more)
    with started(tmp_path, home, plan, "--runner", runner, "--workers", "1") as campaign:

        def ended() -> bool:
            for number in descendants(campaign.pid):
                seen[number] = seen.get(number, False) or serves(number)
            return campaign.poll() is not None

        wait_for(ended, every=0.1)
        assert campaign.stderr
        lines = campaign.stderr.read().splitlines()
    assert campaign.returncode == bool(said)
    assert sum(seen.values()) == 1
    assert running(set(seen)) == set()
    (folder,) = (tmp_path / "w" / "campaigns").glob("alone-*")
    statuses = [row.status for row in read_cells(tmp_path / "w", folder.name)]
    assert statuses == [CellStatus.FINISHED, CellStatus.FAILED][: 1 + bool(more)]
    assert len(lines) == bool(said), lines  # Prefect complains of nothing
    assert all(line.startswith(said) for line in lines)


def serves(number: int) -> bool:
    """Whether a process is a Prefect server."""
    try:
        return b"uvicorn" in Path(f"/proc/{number}/cmdline").read_bytes()
    except OSError:  # it has ended meanwhile
        return False
