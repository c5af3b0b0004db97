"""Tests in several processes, one of which a test ends."""

import os
import subprocess
import sys
from pathlib import Path

from harness.waiting import HANG_SECONDS

ROOT = Path(__file__).parents[2]

CONFTEST = """
from pathlib import Path
from tests.forking import start
from tests.sharing import Sharing

def pytest_xdist_setupnodes(config, specs):
    command = start(config, Path().absolute())
    for spec in specs:
        spec.python = command

def pytest_xdist_make_scheduler(config, log):
    return Sharing(config, log)
"""

THREE = """
import os
import pytest

COLLECTING = os.getpid()

@pytest.mark.parametrize("ends", [True, False, False])
def test_three(ends):
    if ends:
        os._exit(3)
    assert os.getppid() == COLLECTING
"""


def ran_in(folder: Path) -> subprocess.CompletedProcess[str]:
    """Output of pytest for the tests of a folder in a forked process."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib")
    own = {
        "PYTHONPATH": str(ROOT),
        "PYTEST_ADDOPTS": "",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-n1", "-pxdist.plugin", "-pno:cacheprovider"],
        cwd=folder,
        env=os.environ | own,
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
    )


def test_a_test_that_ends_its_process_fails_and_another_process_runs_the_others(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    (folder / "test_three.py").write_text(THREE)
    ran = ran_in(folder)
    assert "crashed while running 'test_three.py::test_three[True]'" in ran.stdout, ran
    assert "= 1 failed, 2 passed in " in ran.stdout, ran
    assert ran.returncode == 1


def test_tests_that_cannot_be_imported_fail_the_run(tmp_path: Path) -> None:
    (tmp_path / "test_import.py").write_text("import no_such_module")
    (tmp_path / "test_other.py").write_text("def test_other(): pass")
    ran = ran_in(tmp_path)
    assert "No module named 'no_such_module'" in ran.stdout, ran
    assert ran.returncode == 1
