"""Plugins: policies, runtimes, trace readers and throughput models of other distributions.

A distribution declares them as entry points in its `pyproject.toml`:

    [project.entry-points."shockwave.policies"]
    smallest-first = "smallest_first:SmallestFirst"

A plugin is imported only when its name is requested, so unused plugins cost no time. Built-in
names take precedence.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from predictor.errors import InputError, PluginError, ShockwaveError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint  # costs more to import than all else here

DIGITS = 12
"""Hexadecimal digits shown of a digest. A choice of layout."""

Answer = TypeVar("Answer")


class Kind(StrEnum):
    """Kinds of plugins: the groups of their entry points."""

    POLICY = "shockwave.policies"
    TRACES = "shockwave.traces"
    THROUGHPUTS = "shockwave.throughputs"
    RUNTIMES = "shockwave.runtimes"


_NOUNS = {
    Kind.POLICY: "policy",
    Kind.TRACES: "format",
    Kind.THROUGHPUTS: "throughput model",
    Kind.RUNTIMES: "runtime",
}


@dataclass(frozen=True)
class Plugin:
    """A plugin of an installed distribution, not imported yet."""

    kind: Kind
    name: str
    distribution: str
    version: str
    entry: "EntryPoint"

    @property
    def place(self) -> str:
        """Its name and origin, for error messages."""
        return f"{_NOUNS[self.kind]} {self.name!r} of {self.distribution} {self.version}"

    @property
    def identity(self) -> str:
        """Version of the distribution and digest of its source, which identify its code."""
        return f"{self.version} sha256:{self._digest()[:DIGITS]}"

    def load(self) -> Any:
        """Import the plugin.

        Raises:
            PluginError: Its module cannot be imported, or lacks the name.
        """
        return self.call("be imported", self.entry.load)

    def call(self, doing: str, work: Callable[[], Answer]) -> Answer:
        """Call code of the plugin; `doing` names the action in errors, as a passive infinitive.

        Raises:
            PluginError: The code raised an exception; names its type and where it was raised.
            ShockwaveError: Raised by the plugin itself, about its input.
        """
        try:
            return work()
        except ShockwaveError:
            raise
        except (Exception, SystemExit) as error:
            problem = f"cannot {doing}: {type(error).__name__}"
            if text := str(error):
                problem += f": {text}"
            raise self.refused(problem + self._where(error)) from error

    def refused(self, problem: str) -> PluginError:
        """Return an error about the plugin."""
        return PluginError(self.place, problem, f"fix {self.distribution}, or do without it")

    def _where(self, error: BaseException) -> str:
        """Return file and line of the plugin's last call, if the exception comes from its files."""
        from traceback import extract_tb

        own = set(self._files())
        calls = [call for call in extract_tb(error.__traceback__) if Path(call.filename) in own]
        return f" ({Path(calls[-1].filename).name}:{calls[-1].lineno})" if calls else ""

    def _files(self) -> Iterator[Path]:
        """Yield the Python files of the plugin's top-level package or module."""
        spec = find_spec(self.entry.module.partition(".")[0])
        if spec is None:
            return
        if spec.submodule_search_locations is None:
            yield Path(spec.origin or "")
            return
        for folder in sorted(spec.submodule_search_locations):
            yield from sorted(Path(folder).rglob("*.py"))

    def _digest(self) -> str:
        digest = hashlib.sha256()
        for path in self._files():
            digest.update(f"{path.name}\n".encode() + path.read_bytes())
        return digest.hexdigest()


@cache
def plugins(kind: Kind) -> dict[str, tuple[Plugin, ...]]:
    """Return the plugins of a kind by name, sorted; several distributions may use the same name."""
    from importlib.metadata import entry_points

    found: dict[str, tuple[Plugin, ...]] = {}
    for entry in sorted(entry_points(group=kind.value), key=lambda entry: entry.name):
        brought = entry.dist
        if brought is not None:
            made = Plugin(kind, entry.name, brought.name, brought.version, entry)
            others = found.get(entry.name, ())
            if made.distribution not in {other.distribution for other in others}:
                found[entry.name] = (*others, made)
    return found


def find_plugin(kind: Kind, name: str) -> Plugin | None:
    """Return the plugin of a name; None if there is none.

    Raises:
        InputError: Several distributions have a plugin of that name.
    """
    found = plugins(kind).get(name, ())
    if len(found) > 1:
        raise InputError(
            f"{_NOUNS[kind]} {name!r}",
            f"is brought by {' and by '.join(plugin.distribution for plugin in found)}",
            "uninstall one of them",
        )
    return found[0] if found else None
