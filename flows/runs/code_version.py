"""Versions that results depend on: of the packages and, for cached results, of the source."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

from tasks.record import Package

ROOT = Path(__file__).parents[2]
PACKAGES = ("containers", "flows", "predictor", "solver", "tasks", "warehouse")
DEPENDENCIES = ("gurobipy", "highspy", "numpy", "scipy")
"""Packages whose versions can change plans and forecasts. PyTorch only trains the jobs."""


def packages() -> tuple[Package, ...]:
    """The packages that results depend on, with their versions, for a run's record."""
    names = ("shockwave", "duckdb", "pyarrow", *DEPENDENCIES)
    return (
        Package("python", platform.python_version()),
        *(Package(name, version(name)) for name in names),
    )


@cache
def code_version(root: Path = ROOT) -> str:
    """Hash of the dependencies' versions and of the six packages' source (Python and SQL).

    Args:
        root: The folder that holds the packages.
    """
    digest = hashlib.sha256(platform.python_version().encode())
    for name in ("shockwave", *DEPENDENCIES):
        digest.update(f"\n{name} {version(name)}".encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".sql"):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"\n{path.relative_to(root).as_posix()} {content}".encode())
    return digest.hexdigest()
