"""Extras: what is not installed is named, with the command that installs it."""

import sys
import tomllib
from pathlib import Path

import pytest

from flows.runs.extras import EXTRAS
from tests.flows.conftest import Command, Finished

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]


def test_extras_are_those_of_the_package() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        required = " ".join(extras[extra]).replace("-", "_")
        assert all(module in required for module in modules)


@pytest.mark.parametrize(
    ("extra", "module", "place", "command"),
    [
        ("report", "vl_convert", "report", ["report", "x"]),
        ("dask", "prefect_dask", "--runner", ["campaign", "x", "--runner", "dask"]),
        ("ray", "prefect_ray", "--runner", ["campaign", "x", "--runner", "ray"]),
    ],
)
def test_without_its_packages_a_command_names_the_extra(
    here: Command,
    finished: Finished,
    monkeypatch: pytest.MonkeyPatch,
    extra: str,
    module: str,
    place: str,
    command: list[str],
) -> None:
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not there
    ran = here(*command, "--warehouse", finished.warehouse)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        f"error: {place}: needs the extra {extra}, which is not installed (no {module}); "
        f"{sys.executable} -m pip install 'shockwave[{extra}]', or make setup for all extras\n"
    )
