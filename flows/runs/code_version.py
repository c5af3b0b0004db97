"""Version of the code: cached results of other versions are not reused."""

import hashlib
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("containers", "flows", "predictor", "solver", "tasks", "warehouse")
DEPENDENCIES = ("gurobipy", "highspy", "numpy", "scipy", "torch")
"""Packages whose versions can change plans and forecasts."""


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
