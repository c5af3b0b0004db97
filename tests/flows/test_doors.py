"""Servers that commands start obey nobody else; conditions of listening on a network."""

import re
import ssl
import stat
import subprocess
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest
from prefect.settings import (
    PREFECT_API_DATABASE_CONNECTION_URL,
    PREFECT_HOME,
    temporary_settings,
)

from flows.prefect_server.access import describe_first_start
from flows.prefect_server.command import answers
from flows.prefect_server.secret import read_secret
from harness.up import PROGRAM, descendants, free_port, running
from harness.waiting import wait_for
from predictor.errors import InputError, WarehouseError
from tests.flows.conftest import Command, assert_refused
from tests.newcomer import elsewhere, lookups_of, newcomer, terminal
from tests.ui.attacks import ask, attacked
from tests.ui.service import own_server
from warehouse.store.folder import records_folder


@pytest.mark.prefect
def test_a_simulation_s_server_obeys_nobody_else_and_does_not_outlive_a_kill(
    home: Path, tmp_path: Path
) -> None:
    """Campaigns start theirs by the same function (test_campaign_server.py)."""
    long = ("--gpus", "8", "--jobs", "2000", "--round-seconds", "60", "--driver", "prefect")
    lookups = tmp_path / "lookups"
    with terminal() as shown:
        program = subprocess.Popen(
            [PROGRAM, "simulate", *long, "--warehouse", tmp_path / "w", "--json"],
            env=newcomer(home, lookups),
            stdin=shown,
            stdout=shown,
            stderr=subprocess.PIPE,
            text=True,
        )
    try:

        def at_work() -> bool:
            assert program.poll() is None, program.communicate()
            return any(records_folder(tmp_path / "w").glob("run=*/round=*.parquet"))

        wait_for(at_work)
        server = own_server(program.pid, home)
        attacked(server)
        assert ask(server, "GET", "/reports/")[0] in (401, 404)  # it hands out none
    finally:
        started = descendants(program.pid)
        program.kill()
        program.communicate()
        assert wait_for(lambda: running(started), lambda left: not left) == set()
    assert lookups_of(lookups)
    assert elsewhere(lookups) == []


# The secret


def test_a_secret_is_made_once_and_is_of_its_user_only(tmp_path: Path) -> None:
    file = tmp_path / "home" / "shockwave-auth"
    secret = read_secret(file)
    assert re.fullmatch(r"shockwave:[\w-]{43}", secret)
    assert read_secret(file) == secret
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert list(file.parent.iterdir()) == [file]
    assert read_secret(tmp_path / "other") != secret


@pytest.mark.parametrize(
    ("text", "mode", "said"),
    [
        ("shockwave:" + "x" * 43, 0o640, "others can read or change it (mode 640)"),
        ("", 0o600, "has no secret"),
        ("shockwave:short", 0o600, "has no secret"),
        ("\xff" * 60, 0o600, "it is not text"),
    ],
)
def test_an_invalid_secret_is_reported(tmp_path: Path, text: str, mode: int, said: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text, encoding="latin-1")
    file.chmod(mode)
    with pytest.raises((InputError, WarehouseError), match=re.escape(said)):
        read_secret(file)


# A network


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "--host: other machines reach 0.0.0.0"),
        (("--host", "::"), "--host: other machines reach ::"),
        (("--tls-cert", "cert.pem"), "--tls-key: is missing"),
        (
            ("--tls-cert", "/no/cert", "--tls-key", "/no/key"),
            "--tls-cert: cannot be served with its key (No such file or directory)",
        ),
        (("--behind-proxy", "gpu.example"), "--behind-proxy: 'gpu.example' is not a plain URL"),
        (("--behind-proxy", "https://gpu.example/ui"), "is not a plain URL"),
        (("--behind-proxy", "https://gpu.example:443"), "is not a plain URL"),
        (("--behind-proxy", "https://gpu.example:port"), "is not a plain URL"),
        (("--behind-proxy", "http://gpu.example"), "would expose the secret to the network"),
    ],
)
def test_what_would_be_open_to_a_network_is_refused(
    here: Command, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ran = here("up", "--port", free_port(), "--warehouse", tmp_path / "w", *options)
    assert_refused(ran, said)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_certificate_needs_a_name_that_it_holds_for(
    here: Command, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    options = ("--port", free_port(), "--warehouse", tmp_path / "w", "--tls-cert", cert)
    ran = here("up", *options, "--tls-key", key, "--host", "0.0.0.0")
    assert_refused(ran, "--host: no certificate is valid for 0.0.0.0")
    ran = here("up", *options, "--tls-key", cert)
    assert_refused(ran, "--tls-cert: cannot be served with its key (")


@pytest.mark.process
def test_a_certificate_of_another_name_is_reported(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(InputError, match=r"^tls_cert: is not valid for https://127\.0\.0\.1"):
            answers(f"https://127.0.0.1:{server.server_port}")


def test_only_a_database_that_is_made_is_waited_for(tmp_path: Path) -> None:
    there = tmp_path / "there.db"
    there.touch()
    remote = "postgresql+asyncpg://u:p@db:5432/prefect"
    with temporary_settings({PREFECT_HOME: tmp_path}):
        assert "first start" in describe_first_start()
        assert (
            describe_first_start(remote)
            == describe_first_start(f"sqlite+aiosqlite:///{there}")
            == ""
        )
        assert "first start" in describe_first_start(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
        (tmp_path / "prefect.db").touch()
        assert describe_first_start() == ""
    with temporary_settings({PREFECT_API_DATABASE_CONNECTION_URL: remote}):
        assert describe_first_start() == ""
