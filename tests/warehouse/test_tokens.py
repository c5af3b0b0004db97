"""Tokens of the API: made once, kept as hashes, and in databases that were there before."""

from pathlib import Path

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine

from predictor.errors import InputError, WarehouseError
from tests.warehouse.test_inbox import JOB
from warehouse.inbox.inbox import FILE, Inbox
from warehouse.inbox.tokens import PREFIX, Role, Token, Tokens


def test_a_token_is_found_until_it_is_removed_and_kept_nowhere(tmp_path: Path) -> None:
    with Tokens(tmp_path) as tokens:
        made = tokens.add("ann", Role.TENANT, "a")
        other = tokens.add("olga", Role.OPERATOR)
        assert made.startswith(PREFIX)
        assert len(made) >= len(PREFIX) + 43  # 32 random bytes
        (found,) = tokens.find(made)
        assert found
        assert (found.name, found.role, found.tenant) == ("ann", Role.TENANT, "a")
        assert tokens.find(made, other, made) == [*tokens.all(), found]
        assert tokens.find("", made + "x", "\udcff", made) == [None, None, None, found]
        tokens.remove("ann")
        assert tokens.find(made) == [None]
    kept = b"".join(path.read_bytes() for path in (tmp_path / FILE).parent.iterdir())
    assert made.encode() not in kept
    assert other.removeprefix(PREFIX).encode() not in kept


@pytest.mark.parametrize(
    ("name", "role", "tenant", "problem"),
    [
        ("", Role.READER, "", "name: is empty"),
        ("ann", Role.READER, "", "name: there is a token 'ann'"),
        ("x" * 99, Role.READER, "", "name: is longer"),
        ("a\n", Role.READER, "", "name: is longer than 80 characters, or has control"),
        ("bob", Role.TENANT, "", "tenant: is missing"),
        ("bob", Role.OPERATOR, "a", "tenant: is given, and the role is operator"),
    ],
)
def test_what_is_no_token_is_refused(
    tmp_path: Path, name: str, role: Role, tenant: str, problem: str
) -> None:
    with Tokens(tmp_path) as tokens:
        tokens.add("ann", Role.READER)
        with pytest.raises(InputError, match=problem):
            tokens.add(name, role, tenant)
        with pytest.raises(InputError, match="there is no token 'bob'"):
            tokens.remove("bob")
        assert [token.name for token in tokens.all()] == ["ann"]


@pytest.mark.parametrize(
    ("role", "tenant", "sees"), [(Role.READER, "", True), (Role.TENANT, "b", False)]
)
def test_a_tenant_sees_its_own(role: Role, tenant: str, sees: bool) -> None:
    token = Token("x", role, tenant)
    assert (token.sees("a"), token.sees(tenant)) == (sees, True)


def test_a_database_from_before_tokens_is_brought_up(tmp_path: Path) -> None:
    (tmp_path / FILE).parent.mkdir()
    config = Config()
    config.set_main_option("script_location", "warehouse.inbox:migrations")
    engine = create_engine(f"sqlite:///{tmp_path / FILE}")
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.exec_driver_sql("INSERT INTO shockwave_service VALUES ('run', 'service-1')")
    engine.dispose()
    with Tokens(tmp_path) as tokens, Inbox(tmp_path) as inbox:
        assert inbox.run == "service-1"
        assert inbox.submit(JOB).number == 1
        assert tokens.find(tokens.add("ann", Role.READER)) != [None]


def test_a_changed_token_is_a_line(tmp_path: Path) -> None:
    with Tokens(tmp_path) as tokens:
        text = tokens.add("ann", Role.READER)
        engine = create_engine(f"sqlite:///{tmp_path / FILE}")
        with engine.begin() as connection:
            connection.exec_driver_sql("UPDATE shockwave_tokens SET role = 'root'")
        engine.dispose()
        with pytest.raises(WarehouseError, match="token 'ann'"):
            tokens.find(text)
        tokens.remove("ann")
        assert tokens.find(text) == [None]
