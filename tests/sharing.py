"""Which tests run in one process, where pytest-xdist has several.

Tests go one by one to whichever process has no work left. Those of a file with fixtures of its
own for all its tests stay together. So do those of all files that share a server, of those that
make reports, whose scripts each process bundles once, and those of a folder that share a Docker
daemon: a process with all of these would be at them when others end.
(`--dist loadgroup` would do, if it did not take all tests for groups of one under pytest 9.)
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

SHARED = {
    "docker": r"\bdaemon: Dockerd|\(.daemon.\)",
    "slurm": r"\blab: Slurm\b",
    "up": r"\bup: Up\b",
    "prefect": r"\bclient: SyncPrefectClient|\bserver: Access|\bhome: Path",
    "database": r"\bSHOCKWAVE_POSTGRES\b",
    "report": r"\bfrom warehouse\.report\.(page|contents|pdf)\b|\bReportForm\b",
}
"""What a file's text has if its tests share something with other files, by the group's name."""

OWN = r"^@pytest\.fixture\(scope=\"module\"|^@cache$"


@cache
def group(file: Path) -> str | None:
    """The group of a file's tests; none if each may run anywhere."""
    text = file.read_text(encoding="utf-8")
    for name, uses in SHARED.items():
        if re.search(uses, text):
            return f"{name} of {file.parent}" if name == "docker" else name
    return str(file) if re.search(OWN, text, re.MULTILINE) else None


class Sharing(LoadScopeScheduling):
    """Gives groups to processes as these run out of work, in the order of collection.

    A test that ends its process has failed, once; another process takes what that one had left.
    (Under the scheduling of pytest-xdist it ends each of those, too, and the last waits forever.)
    """

    def __init__(self, config: pytest.Config, log: Producer | None = None) -> None:
        super().__init__(config, log)
        config.option.loadscopereorder = False

    def _split_scope(self, nodeid: str) -> str:
        return group(self.config.rootpath / nodeid.partition("::")[0]) or nodeid

    def add_node_collection(self, node: WorkerController, collection: Sequence[str]) -> None:
        super().add_node_collection(node, collection)
        if node not in self.registered_collections:  # of other tests, as files have changed
            node.shutdown()

    def _assign_work_unit(self, node: WorkerController) -> None:
        with suppress(OSError):  # the process has just ended: what it was given is put back then
            super()._assign_work_unit(node)

    def _reschedule(self, node: WorkerController) -> None:
        if node not in self.registered_collections:
            return  # it collects
        super()._reschedule(node)
        # A process begins a test when it has the next: one that comes later is given both here.
        if self.workqueue and self._pending_of(self.assigned_work[node]) < 2:
            super()._reschedule(node)

    def remove_node(self, node: WorkerController) -> str | None:
        """Put back what a process that has ended had left.

        Returns:
            The test that ended it; none if all of its tests had ended.
        """
        work = self.assigned_work.pop(node).items()
        left = {name: tests for name, tests in work if not all(tests.values())}
        if not left:
            return None
        tests = next(iter(left.values()))
        crashed = next(test for test, ended in tests.items() if not ended)
        tests[crashed] = True
        if all(tests.values()):
            del left[self._split_scope(crashed)]
        self.workqueue.update(left)
        for other in self.nodes:
            self._reschedule(other)
        return crashed
