"""Helpers of tests of the commands on runs."""

from collections.abc import Callable
from typing import Any

from tests.flows.conftest import Ran

Ask = Callable[..., Ran]


def rows_of(ask: Ask, *parts: object) -> list[dict[str, Any]]:
    ran = ask(*parts, "--json")
    assert ran.code == 0, ran.err
    return ran.rows


def assert_clean(ask: Ask) -> None:
    ran = ask("run", "audit", "--all")
    assert (ran.code, ran.err) == (0, ""), ran.out


def named(ask: Ask, policy: str) -> str:
    return str(rows_of(ask, "run", "list", "--policy", policy)[0]["run"])
