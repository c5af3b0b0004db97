"""The page of traces: bounds on uploads, and stored files."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from httpx import ASGITransport, AsyncClient, Response

from flows.prefect_server import traces as page


class Client:
    """Asks the page, without a server."""

    def __init__(self, folder: Path) -> None:
        self._app = page.traces(folder)

    def get(self) -> Response:
        return self._ask("GET")

    def post(self, **given: Any) -> Response:
        return self._ask("POST", **given)

    def _ask(self, method: str, **given: Any) -> Response:
        async def asked() -> Response:
            transport = ASGITransport(app=self._app)
            async with AsyncClient(transport=transport, base_url="http://up") as client:
                return await client.request(method, "/traces", **given)

        return asyncio.run(asked())


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.setattr(page, "MOST_BYTES", 2**16)
    (tmp_path / "traces").mkdir()
    return Client(tmp_path / "traces")


def sent(*files: tuple[str, bytes]) -> list[tuple[str, tuple[str, bytes]]]:
    return [("file", file) for file in files]


def test_files_are_kept_under_their_names(client: Client, tmp_path: Path) -> None:
    answer = client.post(files=sent(("jobs.trace", b"1"), ("regimes.csv", b"2")))
    assert answer.status_code == 303
    kept = {path.name: path.read_bytes() for path in (tmp_path / "traces").iterdir()}
    assert kept == {"jobs.trace": b"1", "regimes.csv": b"2"}
    assert "jobs.trace" in client.get().text


@pytest.mark.parametrize("name", ["../x", ".hidden", "a/b", "", "a" * 101, "x\ny"])
def test_what_is_no_name_is_refused(client: Client, tmp_path: Path, name: str) -> None:
    assert client.post(files=sent((name, b"1"))).status_code == 400
    assert [*tmp_path.rglob("*")] == [tmp_path / "traces"]


def test_what_is_too_large_is_refused_before_it_is_kept(client: Client, tmp_path: Path) -> None:
    answer = client.post(files=sent(("a", b"x" * 2**15), ("b", b"x" * 2**15)))
    assert answer.status_code == 413
    assert "larger than 0 MiB together" in answer.text
    assert [*(tmp_path / "traces").iterdir()] == []


def test_a_body_without_an_end_is_taken_no_further_than_the_bound(
    client: Client, tmp_path: Path
) -> None:
    part = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    given = 0

    async def body() -> AsyncIterator[bytes]:
        nonlocal given
        yield part
        for _ in range(64):
            given += 2**12
            yield b"x" * 2**12

    headers = {"Content-Type": "multipart/form-data; boundary=x"}
    assert client.post(content=body(), headers=headers).status_code == 413
    assert given == 64 * 2**12  # all is read, so that the answer is seen
    assert [*(tmp_path / "traces").iterdir()] == []


def test_a_folder_that_is_gone_is_an_answer(client: Client, tmp_path: Path) -> None:
    (tmp_path / "traces").rmdir()
    assert client.get().status_code == 200
    assert client.post(files=sent(("a", b"1"))).status_code == 507
