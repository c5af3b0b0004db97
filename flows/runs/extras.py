"""Packages that only some commands need: the extras of `pyproject.toml`."""

import sys
from importlib.util import find_spec

from predictor.errors import InputError

EXTRAS = {
    "report": ("altair", "vl_convert"),
    "dask": ("prefect_dask",),
    "ray": ("prefect_ray",),
}
"""What each brings, as far as Shockwave imports it."""


def require(extra: str, place: str) -> None:
    """Refuse what needs an extra that is not installed.

    Args:
        extra: Its name in `pyproject.toml`.
        place: The command or option that needs it.

    Raises:
        InputError: A package of it is missing.
    """
    missing = [module for module in EXTRAS[extra] if find_spec(module) is None]
    if missing:
        raise InputError(
            place,
            f"needs the extra {extra}, which is not installed (no {', '.join(missing)})",
            f"{sys.executable} -m pip install 'shockwave[{extra}]', or make setup for all extras",
        )
