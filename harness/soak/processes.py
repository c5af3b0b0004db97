"""Processes that are killed and started again."""

import os
import signal
import traceback
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass
class Children:
    """Processes by name, forked from this one; started again when they are killed."""

    work: dict[str, Callable[[], None]]
    running: dict[int, str] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def start(self, name: str) -> None:
        child = os.fork()
        if child:
            self.running[child] = name
            return
        try:
            self.work[name]()
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)

    def kill(self, name: str) -> None:
        """Kill -9, if it runs."""
        for process in [child for child, called in self.running.items() if called == name]:
            os.kill(process, signal.SIGKILL)

    def look(self, hands: Collection[str]) -> None:
        """Restart killed processes; once all submitters are done, start the end."""
        for child in [*self.running]:
            ended, status = os.waitpid(child, os.WNOHANG)
            if not ended:
                continue
            name, code = self.running.pop(child), os.waitstatus_to_exitcode(status)
            if code == -signal.SIGKILL:
                self.start(name)
                continue
            assert code == 0, f"the {name} has failed with code {code}"
            self.done.add(name)
            if {*hands} <= self.done and name != "end":
                self.start("end")


@contextmanager
def children(work: dict[str, Callable[[], None]]) -> Iterator[Children]:
    """Processes that are killed at the end of the context."""
    made = Children(work)
    try:
        yield made
    finally:
        for child in made.running:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
