"""Which tests run in one process, where pytest-xdist has several.

Tests go one by one to whichever process has no work left. Those of a file with fixtures of its
own for all its tests stay together. So do those of all files that share a server, and those of a
folder that share a Docker daemon: a process with all of these would be at them when others end.
(`--dist loadgroup` would do, if it did not take all tests for groups of one under pytest 9.)
"""

import re
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
SHARED = {
    "docker": r"\bdaemon: Dockerd|\(.daemon.\)",
    "up": r"\bup: Up\b",
    "prefect": r"\bclient: SyncPrefectClient|\bserver: Access|\bhome: Path",
    "database": r"\bSHOCKWAVE_POSTGRES\b",
}
"""What a file's text has if its tests share something with other files, by the group's name."""

OWN = r"^@pytest\.fixture\(scope=\"module\"|^@cache$"


@cache
def group(file: str) -> str | None:
    """The group of a file's tests; none if each may run anywhere."""
    text = (ROOT / file).read_text(encoding="utf-8")
    for name, uses in SHARED.items():
        if re.search(uses, text):
            return f"{name} of {Path(file).parent}" if name == "docker" else name
    return file if re.search(OWN, text, re.MULTILINE) else None


class Sharing(LoadScopeScheduling):
    """Gives groups to processes as these run out of work, in the order of collection."""

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0]) or nodeid
