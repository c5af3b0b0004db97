"""Units, `compose.yaml` and runbooks name existing files and valid commands."""

import json
import re
import shlex
import shutil
import subprocess
from configparser import ConfigParser
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from flows.cli.app import build_application
from flows.prefect_server import command as server
from flows.scheduler.process import announce

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
UNITS = [DEPLOY / "shockwave.service", DEPLOY / "shockwave-standby.service"]
RUNBOOKS = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
COMPOSE: Any = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]


def variables() -> dict[str, str]:
    """The settings of the units' example environment."""
    lines = (DEPLOY / "shockwave.env").read_text(encoding="utf-8").splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def unit(file: Path) -> ConfigParser:
    """A unit's settings; of one that is given several times, the last."""
    parser = ConfigParser(interpolation=None, strict=False, delimiters="=")
    parser.optionxform = str
    parser.read(file, encoding="utf-8")
    return parser


def started(file: Path) -> str:
    """The command that a unit starts."""
    line = unit(file)["Service"]["ExecStart"]
    return line.replace("$SHOCKWAVE_OPTIONS", variables()["SHOCKWAVE_OPTIONS"])


COMMANDS = [
    *map(started, UNITS),
    *re.findall(r"exec (shockwave .*)", SERVICES["server"]["command"][-1]),
    *re.findall(r"^    (shockwave .*)$", RUNBOOKS, re.MULTILINE),
]


@pytest.mark.parametrize("line", sorted(set(COMMANDS)))
def test_commands_are_parsed(line: str) -> None:
    command: Any = typer.main.get_command(build_application())
    program, *arguments = shlex.split(line, comments=True)
    assert Path(program).name == "shockwave"
    context = None
    while commands := getattr(command, "commands", None):
        name, *arguments = arguments
        assert name in commands, line
        context, command = command.context_class(command, parent=context), commands[name]
    command.make_context(name, arguments, parent=context)


def test_the_two_units_differ_in_their_description_only() -> None:
    one, other = (file.read_text(encoding="utf-8").splitlines() for file in UNITS)
    assert [a.partition("=")[0] for a, b in zip(one, other, strict=True) if a != b] == [
        "Description"
    ]


@pytest.mark.process
@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="there is no systemd-analyze")
def test_systemd_takes_the_units(tmp_path: Path) -> None:
    for file in UNITS:
        text = re.sub(r"^(ExecStart=)\S+", r"\1/bin/sh", file.read_text(), flags=re.MULTILINE)
        (tmp_path / file.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / file.name for file in UNITS)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_composed_services_have_health_checks_that_exist() -> None:
    assert all(service["healthcheck"]["test"][0] == "CMD" for service in SERVICES.values())
    database = SERVICES["database"]
    test, settings = database["healthcheck"]["test"], database["environment"]
    assert test[1] == "pg_isready"
    assert test[test.index("--username") + 1] == settings["POSTGRES_USER"]
    assert test[test.index("--dbname") + 1] == settings["POSTGRES_DB"]


def test_the_server_is_healthy_where_up_itself_waits_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(server, "_content", asked.append)
    server.answers("http://127.0.0.1:4200")
    *_, program = SERVICES["server"]["healthcheck"]["test"]
    compile(program, "healthcheck", "exec")
    assert re.findall(r'"(http.*?)"', program) == asked
    (state,) = re.findall(r'"/state/warehouse/(.*?)"', program)
    with announce(tmp_path, "http://here", 1.0) as announced:
        for expected in (False, True):
            assert json.loads((tmp_path / state).read_text())["ready"] is expected
            announced(())


def test_the_composition_is_complete() -> None:
    for service in SERVICES.values():
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        volumes = {volume.partition(":")[0] for volume in service["volumes"]}
        assert volumes <= set(COMPOSE["volumes"])
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", ()))
    build = SERVICES["server"]["build"]
    context = DEPLOY / build["context"]
    copied = re.findall(r"^COPY (.*) \S+$", (context / build["dockerfile"]).read_text(), re.M)
    assert copied
    assert all((context / name).exists() for line in copied for name in line.split())


def test_no_password_is_in_a_file_or_an_argument() -> None:
    shell = SERVICES["server"]["command"][-1]
    *before, last = shell.strip().splitlines()
    assert "password" not in last
    assert any(line.startswith("export ") and "$$password@" in line for line in before)
    assert "POSTGRES_PASSWORD" not in SERVICES["database"]["environment"]
    assert list(variables()) == ["SHOCKWAVE_OPTIONS"]
