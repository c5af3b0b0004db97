"""Which code makes a run: results of other code are not taken for this one's."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("containers", "flows", "predictor", "solver", "tasks", "warehouse")
DEPENDENCIES = ("gurobipy", "highspy", "numpy", "scipy", "torch")
"""Whose results plans and forecasts can depend on."""


@cache
def code_version(root: Path = ROOT) -> str:
    """Hash of the versions and of the source (Python and SQL) of the six packages.

    Args:
        root: The folder that holds the packages.
    """
    told = ["shockwave", *DEPENDENCIES]
    digest = hashlib.sha256(platform.python_version().encode())
    for name in told:
        digest.update(f"\n{name} {version(name)}".encode())
    for package in PACKAGES:
        for path in sorted((root / package).rglob("*")):
            if path.suffix in (".py", ".sql"):
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                digest.update(f"\n{path.relative_to(root).as_posix()} {content}".encode())
    return digest.hexdigest()
