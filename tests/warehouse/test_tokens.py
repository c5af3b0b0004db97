"""Tokens of the API: made once and stored as hashes."""

from pathlib import Path

import pytest
from sqlalchemy import create_engine

from predictor.errors import InputError, WarehouseError
from warehouse.inbox.inbox import FILE
from warehouse.inbox.tokens import PREFIX, Role, Token, Tokens


def test_a_token_is_found_until_removed_and_stored_nowhere(tmp_path: Path) -> None:
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
        ("ann", Role.READER, "", "name: there is already a token 'ann'"),
        ("x" * 99, Role.READER, "", "name: is longer"),
        ("a\n", Role.READER, "", "name: is longer than 80 characters, or has control"),
        ("bob", Role.TENANT, "", "tenant: is missing"),
        ("bob", Role.OPERATOR, "a", "tenant: is given, and the role is operator"),
    ],
)
def test_an_invalid_token_is_refused(
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
def test_a_tenant_sees_its_own_jobs(role: Role, tenant: str, sees: bool) -> None:
    token = Token("x", role, tenant)
    assert (token.sees("a"), token.sees(tenant)) == (sees, True)


def test_a_changed_token_is_an_error_of_a_line(tmp_path: Path) -> None:
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
