"""Look-ups of tokens are batched, and a damaged token fails its caller only."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from sqlalchemy import event
from sqlalchemy.engine import Engine

from flows.web.backend import ServiceBackend
from predictor.errors import WarehouseBusy, WarehouseError
from warehouse.inbox.inbox import FILE as DATABASE
from warehouse.inbox.tokens import Role, Tokens


def test_tokens_are_looked_up_together_and_a_damaged_token_fails_its_caller_only(
    tmp_path: Path,
) -> None:
    made = {}
    with Tokens(tmp_path) as tokens:
        for name in ("ann", "bob", "eve"):
            made[name] = f"Bearer {tokens.add(name, Role.READER)}"
    asked = list[str]()

    @event.listens_for(Engine, "before_cursor_execute")
    def note(connection: Any, cursor: Any, statement: str, *more: Any) -> None:
        asked.extend([statement] if "FROM shockwave_tokens" in statement else [])

    async def who(*names: str) -> list[Any]:
        backend = ServiceBackend(tmp_path, "shockwave:secret")
        given = (backend.authenticate(made.get(name, "Bearer none")) for name in names)
        return await asyncio.gather(*given, return_exceptions=True)

    async def who_of_none() -> list[Any]:
        backend = ServiceBackend(tmp_path, "shockwave:secret")
        assert await backend.authenticate(made["ann"])
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            database.execute("DROP TABLE shockwave_tokens")
        asked.clear()
        given = (backend.authenticate(made["ann"]) for _ in range(8))
        return await asyncio.gather(*given, return_exceptions=True)

    try:
        found = asyncio.run(who(*("ann", "bob", "eve", "none") * 5))
        assert [token and token.name for token in found] == ["ann", "bob", "eve", None] * 5
        assert len(asked) <= 2  # all requests that came during the first look-up
        with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
            database.execute("UPDATE shockwave_tokens SET role = 'root' WHERE name = 'eve'")
        ann, eve, bob = asyncio.run(who("ann", "eve", "bob"))
        assert (ann.name, bob.name) == ("ann", "bob")
        assert isinstance(eve, WarehouseError)
        assert {type(error) for error in asyncio.run(who_of_none())} == {WarehouseBusy}
        assert len(asked) <= 2  # no request waits for the failed look-ups of others
    finally:
        event.remove(Engine, "before_cursor_execute", note)
