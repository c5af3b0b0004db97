"""Shared by all tests: markers by fixtures, distribution over processes, Hypothesis profiles."""

import gc
import os
import shutil
import signal
import subprocess
import tempfile
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from flows.prefect_server.environment import private_env
from tests.daemons import daemon, lab, started_slurm, storage
from tests.heartbeat import Heartbeat
from tests.quick import FOLDERS, Quick

__all__ = ["daemon", "lab", "started_slurm", "storage"]

settings.register_profile("whole", derandomize=True, deadline=None)
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=5)
settings.load_profile("whole")

MARKERS = {"daemon": "docker", "client": "prefect", "up": "prefect", "page": "browser"} | {
    "lab": "slurm",
    "program": "process",
}
"""What a test is marked with that uses a fixture."""

FIRST = ("prefect", "docker", "slurm", "browser", "slow", "process")
"""Markers of the tests that begin first, so that no worker ends long after the others."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="only what needs no process, in a minute")


MEMORY = Path("/dev/shm")
MEMORY_BYTES = 4 * 2**30
"""More than all tests leave behind."""


def pytest_configure(config: pytest.Config) -> None:
    # What is imported lives until the end: going through all of it takes a twentieth of the time.
    gc.set_threshold(10_000, 10, 100)
    os.environ.update(private_env())  # before Prefect is imported, which reads it
    os.environ.setdefault(
        "SHOCKWAVE_PROGRESS", "0"
    )  # how long commands take is not a test's matter
    # Docker starts several programs in Go for each container, which end before they need either.
    os.environ.setdefault("GOGC", "400")
    os.environ.setdefault("GOMAXPROCS", "1")
    # Each of NumPy's and SciPy's threads looks out for work for a while before it sleeps: in every
    # program that tests start, for matrices that are too small to be shared out.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if MEMORY.is_dir() and shutil.disk_usage(MEMORY).free > MEMORY_BYTES:
        # Records are flushed to the disk round by round, which takes longer than the rounds.
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))
        if "TMPDIR" not in os.environ:  # of what commands write for themselves, too
            folder = os.environ["TMPDIR"] = tempfile.tempdir = tempfile.mkdtemp("", "sw-", MEMORY)
            os.chmod(folder, 0o1777)
            # After multiprocessing, which ends with the process, has removed its own in there.
            Finalize(None, shutil.rmtree, (folder, True), exitpriority=-1000)
    if config.getoption("--quick"):
        settings.load_profile("quick")
        config.pluginmanager.register(Quick())
    if config.getoption("dist", "no") != "no":
        config.pluginmanager.register(Heartbeat(config))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_setupnodes(config: pytest.Config, specs: list[Any]) -> None:
    if len(specs) > len(os.sched_getaffinity(0)):
        from tests.forking import start

        folder = tempfile.mkdtemp()
        config.add_cleanup(lambda: shutil.rmtree(folder, ignore_errors=True))
        command = start(config, Path(folder))
        for spec in specs:
            spec.python = command


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from tests.sharing import Sharing

    return Sharing(config, log)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests, and begin with the longest."""
    for item in items:
        names = getattr(item, "fixturenames", ())
        if folder := FOLDERS.get(item.path.parent.name):
            item.add_marker(folder)
        for name, marker in MARKERS.items():
            if name in names:
                item.add_marker(marker)
    items.sort(key=_rank)


def pytest_collection_finish() -> None:
    gc.freeze()  # which no collection then goes through


def _rank(item: pytest.Item) -> int:
    found = (place for place, name in enumerate(FIRST) if item.get_closest_marker(name))
    return next(found, len(FIRST))


def pytest_runtest_setup() -> None:
    # What a shell starts with `&` ignores SIGINT, a server in this process takes it away, and
    # the programs that tests start and interrupt would inherit either.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the public Shockwave traces."""
    root = Path(__file__).parents[1] / os.environ.get("SHOCKWAVE_DATA", "../shared/data")
    folder = root / "shockwave"
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}; set SHOCKWAVE_DATA to their parent")
    return folder


@pytest.fixture(scope="session")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of localhost and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-out", cert, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key
