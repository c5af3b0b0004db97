"""A Docker daemon and a Slurm for tests; they are skipped, or fail in CI, where none can run."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from harness.dockerd import Dockerd
    from harness.slurm import Slurm


def give_up(lacking: str) -> NoReturn:
    """Skip what needs something that is not here, but fail where CI is set."""
    stop = pytest.fail if os.environ.get("CI") else pytest.skip
    stop(lacking)


def need_daemon() -> None:
    """Skip or fail where no daemon can be started."""
    from harness.dockerd import missing

    if lacking := missing():
        give_up(lacking)


@pytest.fixture(scope="session")
def daemon() -> Iterator["Dockerd"]:
    """A daemon, where one can be started; the same for all tests."""
    from harness.dockerd import dockerd

    need_daemon()
    with ExitStack() as stack:
        try:
            started = stack.enter_context(dockerd())
        except RuntimeError as error:
            give_up(f"no Docker daemon can be started: {error}")
        yield started


@pytest.fixture(scope="session")
def started_slurm() -> Iterator["Slurm"]:
    """A Slurm, where one can be started; the same for all tests."""
    from harness.slurm import missing, slurm

    if lacking := missing():
        give_up(lacking)
    with ExitStack() as stack:
        try:
            started = stack.enter_context(slurm())
        except RuntimeError as error:
            give_up(f"no Slurm can be started: {error}")
        yield started


@pytest.fixture
def lab(started_slurm: "Slurm") -> Iterator["Slurm"]:
    """A Slurm without jobs."""
    yield started_slurm
    started_slurm.clear()


@pytest.fixture
def storage() -> Iterator[Path]:
    """A folder that containers' users may pass through, unlike `tmp_path`."""
    root = os.environ.get("PYTEST_DEBUG_TEMPROOT", "/tmp")
    folder = Path(tempfile.mkdtemp(prefix="sw-jobs-", dir=root))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)
