"""Optional dependencies: the extras of `pyproject.toml`."""

import sys
from importlib.util import find_spec
from pathlib import Path
from shlex import quote

from predictor.errors import InputError

EXTRAS = {
    "report": ("altair", "vl_convert"),
    "dask": ("prefect_dask",),
    "ray": ("prefect_ray",),
}
"""Modules that Shockwave imports, by extra."""

CONSTRAINTS = Path(__file__).parents[2] / "constraints.txt"
"""The exact package versions of a checkout's setup."""


def require(extra: str, place: str) -> None:
    """Refuse a command or option (`place`) whose extra is not installed.

    Raises:
        InputError: A package of the extra is missing.
    """
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise InputError(
            place,
            f"needs the extra {extra}, which is not installed (no {', '.join(missing)})",
            f"{_installing(extra)}, or make setup for all extras",
        )


def _installing(extra: str) -> str:
    """Return the command that installs an extra; a checkout gets its exact versions."""
    uv, python = Path(sys.executable).parent / "uv", quote(sys.executable)
    if not (CONSTRAINTS.exists() and uv.exists()):
        return f"{python} -m pip install 'shockwave[{extra}]'"
    asked = f"--constraint {quote(str(CONSTRAINTS))} 'shockwave[{extra}]'"
    return f"{quote(str(uv))} pip install --python {python} {asked}"
