"""Single sign-on: who is believed to speak for users, and who is not."""

import logging
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from flows.supervisor.config import ListenAddress
from flows.web.single_sign_on import read_single_sign_on
from harness.up import free_port
from predictor.errors import InputError
from tests.flows.served import SECRET, served
from tests.flows.test_api import FILE, furnish

PASSWORD = "0123456789abcdef" * 4
TEXT = """
proxies = ["127.0.0.1"]
password_file = "password"
[[groups]]
group = "admins"
role = "operator"
[[groups]]
group = "team-a"
role = "tenant"
tenant = "a"
"""


def write(folder: Path, text: str = TEXT, password: str = PASSWORD, mode: int = 0o600) -> Path:
    (folder / "password").write_text(f"{password}\n")
    (folder / "password").chmod(mode)
    (file := folder / "users.toml").write_text(text)
    return file


def named(groups: str, user: str = "ann@example.com", password: str = PASSWORD) -> dict[str, str]:
    """The headers that the proxy sends."""
    proof = b64encode(f"{user}:{password}".encode()).decode()
    headers = {"X-Forwarded-Email": user, "X-Forwarded-Groups": groups}
    return headers | {"Authorization": f"Basic {proof}"}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder = tmp_path_factory.mktemp("users")
    furnish(folder)
    with (
        served(folder, read_single_sign_on(write(tmp_path_factory.mktemp("file")))) as url,
        httpx.Client(base_url=url) as client,
    ):
        yield client


@pytest.mark.slow
def test_groups_become_roles_and_tenants(site: httpx.Client) -> None:
    def me(groups: str) -> dict[str, str]:
        answer = site.get("/v1/me", headers=named(groups)).json()
        return {field: answer[field] for field in ("name", "role", "tenant")}

    ann = {"name": "ann@example.com"}
    assert me("team-a,others") == ann | {"role": "tenant", "tenant": "a"}
    assert me("team-a, admins") == ann | {"role": "operator", "tenant": ""}  # the first of the file
    tenants = site.get("/v1/jobs", headers=named("team-a")).json()
    assert {row["tenant"] for row in tenants} == {"a"}
    page = site.get("/live", headers=named("admins"))
    assert (page.status_code, "ann@example.com" in page.text) == (200, True)


@pytest.mark.slow
def test_what_changes_anything_comes_from_an_own_page_or_with_a_token(site: httpx.Client) -> None:
    def submit(**headers: str) -> int:
        about = {"json": FILE, "headers": named("team-a") | headers}
        return site.post("/v1/jobs", **about).status_code  # type: ignore[arg-type]

    assert submit(Origin=str(site.base_url).rstrip("/")) == 201
    assert submit() == 403
    assert submit(Origin="https://evil.example") == 403
    form = site.post("/live/jobs/1/cancel", headers=named("admins"))
    assert form.status_code == 403


@pytest.mark.slow
def test_a_shell_needs_an_own_page_or_a_token(
    site: httpx.Client, caplog: pytest.LogCaptureFixture
) -> None:
    own = str(site.base_url).rstrip("/")
    address = f"ws{own.removeprefix('http')}/v1/jobs/1/shell"
    logger = logging.getLogger("uvicorn.error")
    logger.addHandler(caplog.handler)
    try:
        for origin, status in ((None, "403"), (Origin(own), "422")):
            with pytest.raises(InvalidStatus, match=status):
                connect(address, additional_headers=named("team-a"), origin=origin)
    finally:
        logger.removeHandler(caplog.handler)
    assert [record.getMessage() for record in caplog.records] == []


ADMIN = named("admins")
CLAIM = [*ADMIN.items()][:2]
SPOOFED: dict[str, list[tuple[str, str]]] = {
    "without a password": CLAIM,
    "another password": [*named("admins", password="f" * 64).items()],
    "the secret's form": [*ADMIN.items(), ("Authorization", "Bearer x")],
    "two users": [*ADMIN.items(), ("X-Forwarded-Email", "eve@example.com")],
    "groups behind the proxy's": [*named("others").items(), ("X-Forwarded-Groups", "admins")],
    "groups before the proxy's": [("x-forwarded-groups", "admins"), *named("others").items()],
    "no user": [*named("admins", user="").items()],
    "a name too long": [*named("admins", user="x" * 81).items()],
    "no group of the file": [*named("admin,ADMINS").items()],
    "no Basic": [*CLAIM, ("Authorization", f"Bearer {PASSWORD}")],
    "no base 64": [*CLAIM, ("Authorization", "Basic \u00e9")],
}


@pytest.mark.slow
@pytest.mark.parametrize("how", SPOOFED)
def test_a_spoofed_user_is_nobody(site: httpx.Client, how: str) -> None:
    headers = [(name, value.encode()) for name, value in SPOOFED[how]]
    for path in ("/v1/me", "/v1/queue", "/live"):
        assert site.get(path, headers=headers).status_code == 401


@pytest.mark.slow
@pytest.mark.parametrize("proxies", ['"10.0.0.0/8"', '"127.0.0.2"', '"::1"'])
def test_a_user_from_another_address_is_nobody(tmp_path: Path, proxies: str) -> None:
    furnish(tmp_path)
    users = read_single_sign_on(write(tmp_path, TEXT.replace('"127.0.0.1"', proxies)))
    claim = ADMIN | {
        "X-Forwarded-For": "10.0.0.1",
        "X-Real-IP": "127.0.0.2",
        "Forwarded": "for=::1",
    }
    with served(tmp_path, users) as url:
        assert httpx.get(f"{url}/v1/me", headers=claim).status_code == 401
        own = httpx.get(f"{url}/v1/me", auth=tuple(SECRET.split(":")))  # type: ignore[arg-type]
        assert own.json()["role"] == "operator"  # as before


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (TEXT.replace("127.0.0.1", "proxy"), "proxies: 'proxy' is no address"),
        (TEXT.replace("127.0.0.1", "0.0.0.0/0"), "is every address"),
        (TEXT.replace('tenant = "a"', ""), "give a tenant"),
        (TEXT.replace("operator", "root"), "role"),
        (TEXT.replace('"password"', '"none"'), "none: cannot be read"),
        (TEXT + "extra = 1\n", "extra"),
        ("proxies", "is not TOML"),
    ],
)
def test_a_wrong_file_is_a_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_single_sign_on(write(tmp_path, text))


@pytest.mark.parametrize(
    ("given", "problem"),
    [({"password": "short"}, "has fewer than 32"), ({"mode": 0o604}, "everybody can read")],
)
def test_a_weak_password_is_a_line(tmp_path: Path, given: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read_single_sign_on(write(tmp_path, **given))  # type: ignore[arg-type]


def test_users_need_a_proxy(tmp_path: Path) -> None:
    listening = ListenAddress("127.0.0.1", free_port(), single_sign_on=write(tmp_path))
    with pytest.raises(InputError, match="single_sign_on: needs a proxy"):
        listening.check()
