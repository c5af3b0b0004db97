"""Versions that results depend on: of packages and, for cached results, of the source."""

import hashlib
import platform
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from pathlib import Path

from predictor.plugins import Kind, find_plugin
from solver.policies import policy_plugin
from tasks.record import Package, RuntimeKind, Settings

ROOT = Path(__file__).parents[2]
PACKAGES = ("containers", "flows", "predictor", "solver", "tasks", "warehouse")
DEPENDENCIES = ("clarabel", "gurobipy", "highspy", "numpy", "scipy")
"""Packages whose versions can change plans and forecasts; PyTorch only trains the jobs."""


def list_packages(settings: Settings) -> tuple[Package, ...]:
    """Return the packages that a run's results depend on, with versions, for its record."""
    names = ("shockwave", "duckdb", "pyarrow", *DEPENDENCIES)
    return (
        Package("python", platform.python_version()),
        *(Package(name, version(name)) for name in names),
        *list_plugins(settings),
    )


def list_plugins(settings: Settings) -> tuple[Package, ...]:
    """Return the distributions of a run's policy and runtime plugins, with versions and digests."""
    own = settings.runtime not in set(RuntimeKind)
    runtime = find_plugin(Kind.RUNTIMES, settings.runtime) if own else None
    used = filter(None, (policy_plugin(settings.policy), runtime))
    return tuple(dict.fromkeys(Package(plugin.distribution, plugin.identity) for plugin in used))


def describe_changed_plugins(settings: Settings, recorded: Sequence[Package]) -> list[str]:
    """Describe how a run's plugins differ from the recorded ones."""
    before = {package.name: package.version for package in recorded}
    return [
        f"recorded with {now.name} {before.get(now.name, 'of an unknown version')}, "
        f"and here is {now.version}"
        for now in list_plugins(settings)
        if now not in recorded
    ]


def hash_code(settings: Settings) -> str:
    """Return the version of all code that a run's results depend on, plugins included."""
    plugins = [f" {plugin.name} {plugin.version}" for plugin in list_plugins(settings)]
    return "".join([code_version(), *plugins])


@cache
def code_version(root: Path = ROOT, packages: tuple[str, ...] = PACKAGES) -> str:
    """Hash the dependencies' versions and the packages' source (Python and SQL).

    `packages` are folders in `root`.
    """
    digest = hashlib.sha256(platform.python_version().encode())
    for name in ("shockwave", *DEPENDENCIES):
        digest.update(f"\n{name} {version(name)}".encode())
    for package in packages:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".sql"):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"\n{path.relative_to(root).as_posix()} {content}".encode())
    return digest.hexdigest()
