"""Optional dependencies: the extras of `pyproject.toml`."""

import sys
from importlib.util import find_spec

from predictor.errors import InputError

EXTRAS = {
    "report": ("altair", "vl_convert"),
    "dask": ("prefect_dask",),
    "ray": ("prefect_ray",),
}
"""Modules of each extra that Shockwave imports."""


def require(extra: str, place: str) -> None:
    """Refuse a command or option whose extra is not installed.

    Args:
        extra: Name of the extra in `pyproject.toml`.
        place: The command or option that needs it.

    Raises:
        InputError: A package of the extra is missing.
    """
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise InputError(
            place,
            f"needs the extra {extra}, which is not installed (no {', '.join(missing)})",
            f"{sys.executable} -m pip install 'shockwave[{extra}]', or make setup for all extras",
        )
