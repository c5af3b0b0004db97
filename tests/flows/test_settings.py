"""Settings are defined once: options, defaults, bounds and names in errors follow."""

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from flows.cli.errors import convert_place
from flows.cli.options import ClusterOptions
from flows.deployments.forms import SimulationForm
from flows.runs.setting import check_bounds, settings_in
from flows.runs.settings import (
    BACKEND,
    MOST_GPUS,
    ClusterSize,
    RunSettings,
    SimulationSettings,
    make_settings,
)
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver import inventory
from solver.backends.choice import BACKENDS
from tasks.record import Settings, make_pool
from tests.flows.conftest import command_named

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("command", "group"),
    [
        *((name, Source) for name in ("simulate", "compare", "cluster run", "workload generate")),
        *((name, ClusterOptions) for name in ("simulate", "compare")),
        *((name, SimulationSettings) for name in ("simulate", "compare")),
        ("cluster run", RunSettings),
    ],
)
def test_options_are_those_of_the_settings(command: str, group: type[Any]) -> None:
    options = {option.name: option for option in command_named(command).params}
    for field, (name, _, setting) in zip(fields(group), settings_in(group), strict=True):
        assert options[name].opts == [f"--{name.replace('_', '-')}"]
        assert options[name].secondary_opts == []
        assert options[name].help == setting.meaning
        assert options[name].default == field.default


def test_settings_are_recorded_with_the_defaults_of_a_record() -> None:
    assert make_settings("fifo", ClusterSize(4), SimulationSettings()) == Settings(
        "fifo", make_pool(4)
    )
    live = make_settings("fifo", ClusterSize(8, 4), RunSettings(window=3), seed=2, runtime="docker")
    assert live.pools == make_pool(8, 4)
    assert (live.window, live.seed, live.runtime) == (3, 2, "docker")


def test_what_is_known_of_the_solver_without_its_import_is_true() -> None:
    assert inventory.MOST_GPUS == MOST_GPUS
    assert all(name in BACKEND.meaning for name in BACKENDS)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"window": 0}, "window: 0 is out of range; give at least 1"),
        ({"window": 1_001}, "window: 1001 is out of range; give at most 1000"),
        ({"round_seconds": float("nan")}, "round_seconds: nan is out of range; give at least 1"),
        ({"restart_seconds": float("inf")}, "restart_seconds: inf is out of range; give at most"),
    ],
)
def test_a_value_out_of_bounds_is_refused_by_its_field(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        check_bounds(SimulationSettings, SimulationSettings(**given))


@pytest.mark.parametrize(
    ("command", "place", "said"),
    [
        ("simulate", "gpus", "--gpus"),
        ("simulate", "round_seconds", "--round-seconds"),
        ("simulate", "parameters.lateness", "--set lateness"),
        ("run replay", "round", "--round"),
        ("run whatif", "with", "--with"),
        ("simulate", "jobs.trace", "jobs.trace"),  # a file
        ("run replay", "run", "run"),  # an argument
        ("simulate", "run 'x'", "run 'x'"),
    ],
)
def test_a_place_is_named_as_the_option_that_gave_it(command: str, place: str, said: str) -> None:
    assert convert_place(place, command_named(command).params) == said


@pytest.mark.parametrize(
    ("place", "said"),
    [("round_seconds", "Round (s)"), ("fidelity", "Fidelity"), ("run 'x'", "run 'x'")],
)
def test_a_form_names_a_place_as_the_title_of_its_field(place: str, said: str) -> None:
    assert SimulationForm().named(InputError(place, "is 0", "correct it")).place == said


@pytest.mark.process
def test_help_needs_neither_pydantic_nor_numpy() -> None:
    code = "import sys, flows.cli.simulate as s; print({'pydantic', 'numpy'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (done.stdout, done.stderr) == ("set()\n", "")


@pytest.mark.parametrize("package", ["predictor", "solver", "containers", "tasks", "warehouse"])
def test_no_option_is_named_below_the_flows(package: str) -> None:
    # Slurm's commands have options of their own.
    for path in {*(ROOT / package).rglob("*.py")} - {*(ROOT / "containers/slurm").rglob("*.py")}:
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"sha256sum --check|docker network create .*", "", text)
        assert not re.findall(r"(?<![\w-])--[a-z][a-z-]+", text), path
