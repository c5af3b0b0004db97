"""The servers that commands start for themselves obey nobody else; who may listen to a network."""

import re
import ssl
import stat
import subprocess
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from flows.servers.access import Access
from flows.servers.command import answers
from flows.servers.secret import read_secret
from predictor.errors import InputError, WarehouseError
from tests.flows.conftest import PROGRAM, Command
from tests.flows.test_campaign_server import serves
from tests.ui.attacks import ask, attacked
from tests.ui.service import descendants, free_port, outside, ready, running
from tests.waiting import wait_for

PLAN = """
name = "guarded"
policies = ["fifo"]
[settings]
round_seconds = 60
[[workloads]]
name = "drawn"
jobs = 2000
[[clusters]]
name = "eight"
gpus = 8
"""
LONG = ("--gpus", "8", "--jobs", "2000", "--round-seconds", "60")
COMMANDS = {
    "simulate": ("simulate", *LONG, "--driver", "prefect"),
    "compare": ("compare", *LONG, "--policies", "fifo"),
    "campaign": ("campaign", "{plan}", "--workers", "1"),
}
"""Commands that start a server, at work for longer than a test takes."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(params=COMMANDS)
def own_server(request: pytest.FixtureRequest, home: Path, tmp_path: Path) -> Iterator[Access]:
    """The server that a command has started for itself."""
    (tmp_path / "plan.toml").write_text(PLAN)
    arguments = [part.format(plan=tmp_path / "plan.toml") for part in COMMANDS[request.param]]
    program = subprocess.Popen(
        [PROGRAM, *arguments, "--warehouse", tmp_path / "w", "--json"],
        env=outside(home),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:

        def servers() -> list[int]:
            assert program.poll() is None, program.communicate()
            return [number for number in descendants(program.pid) if serves(number)]

        (number,) = wait_for(servers)
        line = Path(f"/proc/{number}/cmdline").read_text().split("\0")
        assert line[line.index("--host") + 1] == "127.0.0.1"
        url = f"http://127.0.0.1:{line[line.index('--port') + 1]}"
        wait_for(lambda: answers(url))
        yield Access(url, read_secret(home / "shockwave-auth"))
    finally:
        started = descendants(program.pid)
        program.kill()
        program.communicate()
        wait_for(lambda: running(started), lambda left: not left)


@pytest.mark.prefect
def test_the_server_of_a_command_obeys_nobody_else(own_server: Access) -> None:
    attacked(own_server)
    assert ask(own_server, "GET", "/reports/")[0] in (401, 404)  # it hands out none


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
def test_a_secret_that_is_none_is_told(tmp_path: Path, text: str, mode: int, said: str) -> None:
    file = tmp_path / "secret"
    file.write_text(text, encoding="latin-1")
    file.chmod(mode)
    with pytest.raises((InputError, WarehouseError), match=re.escape(said)):
        read_secret(file)


# A network


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate of localhost and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    cert, key = folder / "cert.pem", folder / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost", "-out", cert, "-keyout", key),
        ],
        check=True,
        capture_output=True,
    )
    return cert, key


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--host", "0.0.0.0"), "--host: 0.0.0.0 is reached from other machines"),
        (("--host", "::"), "--host: :: is reached from other machines"),
        (("--tls-cert", "cert.pem"), "--tls-key: is missing"),
        (
            ("--tls-cert", "/no/cert", "--tls-key", "/no/key"),
            "--tls-cert: cannot be served with its key (No such file or directory)",
        ),
        (("--behind-proxy", "gpu.example"), "--behind-proxy: 'gpu.example' is not an address"),
        (("--behind-proxy", "https://gpu.example/ui"), "is not an address as browsers write it"),
        (("--behind-proxy", "https://gpu.example:443"), "is not an address as browsers write it"),
        (("--behind-proxy", "https://gpu.example:port"), "is not an address as browsers write it"),
        (("--behind-proxy", "http://gpu.example"), "tells a network the secret"),
    ],
)
def test_what_would_be_open_to_a_network_is_refused(
    here: Command, tmp_path: Path, options: tuple[str, ...], said: str
) -> None:
    ran = here("up", "--port", free_port(), "--warehouse", tmp_path / "w", *options)
    assert (ran.code, ran.out) == (2, "")
    (line,) = ran.err.splitlines()
    assert said in line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.process
def test_a_certificate_needs_a_name_that_it_holds_for(
    here: Command, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    options = ("--port", free_port(), "--warehouse", tmp_path / "w", "--tls-cert", cert)
    ran = here("up", *options, "--tls-key", key, "--host", "0.0.0.0")
    assert ran.code == 2
    assert "--host: 0.0.0.0 is in no certificate" in ran.err
    ran = here("up", *options, "--tls-key", cert)
    assert ran.code == 2
    assert "--tls-cert: cannot be served with its key (" in ran.err


@pytest.mark.prefect
def test_with_tls_and_a_proxy_it_is_reached_by_their_names(
    home: Path, tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    cert, key = certificate
    with ready(
        tmp_path,
        *("--host", "localhost", "--tls-cert", str(cert), "--tls-key", str(key)),
        *("--behind-proxy", "https://gpu.example"),
        home=home,
        SSL_CERT_FILE=str(cert),
    ) as service:
        assert "Ready: https://gpu.example/deployments" in service.log.read_text()
        access = Access(f"https://localhost:{service.port}", service.access.secret)
        trusted = ssl.create_default_context(cafile=str(cert))
        for host, status in (
            (f"localhost:{service.port}", 200),
            ("gpu.example", 200),
            (f"gpu.example:{service.port}", 403),
        ):
            asked = ask(access, "GET", "/api/health", headers={"Host": host}, tls=trusted)
            assert asked[0] == status, host


@pytest.mark.process
def test_a_certificate_of_another_name_is_told(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    cert, key = certificate
    monkeypatch.setenv("SSL_CERT_FILE", str(cert))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    with HTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(InputError, match=r"^tls_cert: does not hold for https://127\.0\.0\.1"):
            answers(f"https://127.0.0.1:{server.server_port}")
