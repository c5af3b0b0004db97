"""What all tests share: the public data and how Hypothesis searches."""

import os
import signal
from pathlib import Path

import pytest
from hypothesis import settings

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # As for what a shell starts with `&`: programs that tests start and interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci")


@pytest.fixture(scope="session")
def data() -> Path:
    """Folder of the public Shockwave traces."""
    root = Path(__file__).parents[1] / os.environ.get("SHOCKWAVE_DATA", "../shared/data")
    folder = root / "shockwave"
    if not folder.is_dir():
        pytest.skip(f"no public traces in {folder}; set SHOCKWAVE_DATA to their parent")
    return folder
