"""Versions with known container escapes."""

import pytest

from containers.docker.escapes import ENGINE, RUNC, TOOLKIT, Escape, parsed


def known(escapes: tuple[Escape, ...], version: str) -> list[str]:
    return [escape.names[:14] for escape in escapes if escape.concerns(version)]


@pytest.mark.parametrize(
    ("version", "first", "second"),
    [
        ("1.1.11", True, True),
        ("1.1.12-0ubuntu2~22.04.1", False, True),
        ("1.2.7", False, True),
        ("1.2.8", False, False),
        ("1.3.2", False, True),
        ("1.3.3+ds1", False, False),
        ("1.4.0-rc.2", False, True),
        ("1.4.0-rc.3", False, False),
        ("1.4.0", False, False),
        ("1.5.2", False, False),
    ],
)
def test_each_line_of_runc_is_held_against_its_own_fix(
    version: str, first: bool, second: bool
) -> None:
    assert [escape.concerns(version) for escape in RUNC] == [first, second]


def test_fixes_ascend_and_the_last_one_mends_all() -> None:
    for escape in (*RUNC, *ENGINE, *TOOLKIT):
        fixes = [parsed(text) for text in escape.fixed]
        assert fixes == sorted(fixes)
        assert not any(map(escape.concerns, escape.fixed))
    assert known(TOOLKIT, "1.17.7") == ["CVE-2025-23266", "CVE-2026-24260"]
    assert known(TOOLKIT, TOOLKIT[-1].fixed[-1]) == []


@pytest.mark.parametrize("text", ["", "dev", "20.10", "deadbeef"])
def test_what_is_no_version_is_said_to_be_none(text: str) -> None:
    with pytest.raises(ValueError, match="is no version"):
        parsed(text)
