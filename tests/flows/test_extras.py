"""Missing extras are named, with the command that installs them."""

import sys
import tomllib
from importlib.metadata import requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from flows.runs.extras import EXTRAS
from tests.flows.conftest import Command, Finished, assert_refused

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CAMPAIGN = ["campaign", "run", str(ROOT / "examples" / "campaign.toml"), "--runner"]


def test_extras_are_those_of_the_package() -> None:
    extras = PROJECT["optional-dependencies"]
    for extra, modules in EXTRAS.items():
        required = " ".join(extras[extra]).replace("-", "_")
        assert all(module in required for module in modules)


def test_a_server_without_extras_reads_forms() -> None:
    """Starlette imports what it parses them with when the first one is sent."""
    needed, missing = {"python-multipart"}, [*map(Requirement, PROJECT["dependencies"])]
    installed = set[str]()
    while missing:
        requirement = missing.pop()
        name = canonicalize_name(requirement.name)
        if name not in installed and (
            requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        ):
            installed.add(name)
            missing += map(Requirement, requires(name) or ())
    assert needed <= installed


@pytest.mark.parametrize(
    ("extra", "module", "place", "command"),
    [
        ("report", "vl_convert", "report", ["report", "x"]),
        ("dask", "prefect_dask", "--runner", [*CAMPAIGN, "dask"]),
        ("ray", "prefect_ray", "--runner", [*CAMPAIGN, "ray"]),
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
    assert_refused(
        ran,
        f"error: {place}: needs the extra {extra}, which is not installed (no {module}); "
        f"{Path(sys.executable).parent}/uv pip install --python {sys.executable} "
        f"--constraint {ROOT}/constraints.txt 'shockwave[{extra}]', or make setup for all extras",
    )
