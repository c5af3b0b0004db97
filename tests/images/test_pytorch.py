"""Modules that are executed on demand."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from trainer.pytorch import OnDemand


@pytest.fixture
def executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Modules in the order in which they were executed: two on demand, and who expects both."""
    done: list[str] = []
    monkeypatch.setattr(sys, "sw_executed", done, raising=False)
    finder = OnDemand(["sw_one", "sw_many"], "sw_last")
    monkeypatch.setattr(sys, "meta_path", [finder, *sys.meta_path])
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "sw_many").mkdir()
    for name in ("sw_one", "sw_many/__init__", "sw_many/part", "sw_last"):
        text = "import sys; sys.sw_executed.append(__name__); number = 3"
        (tmp_path / f"{name}.py").write_text(text)
    importlib.import_module("sw_one")
    importlib.import_module("sw_many")
    yield done
    for name in [name for name in sys.modules if name.startswith("sw_")]:
        del sys.modules[name]


def test_what_is_asked_of_any_module_executes_none(executed: list[str]) -> None:
    one = sys.modules["sw_one"]
    assert one.__name__ == "sw_one"
    assert (one.__file__ or "").endswith("sw_one.py")
    assert not hasattr(one, "__wrapped__")
    assert executed == []


def test_a_module_is_executed_when_it_is_asked_for_something(executed: list[str]) -> None:
    assert sys.modules["sw_one"].number == 3
    assert executed == ["sw_one"]
    with pytest.raises(AttributeError, match="has no attribute 'other'"):
        sys.modules["sw_one"].other  # noqa: B018
    assert importlib.import_module("sw_one").number == 3
    assert executed == ["sw_one"]


def test_a_package_is_executed_before_what_is_in_it(executed: list[str]) -> None:
    importlib.import_module("sw_many.part")
    assert executed == ["sw_many", "sw_many.part"]


def test_all_are_executed_before_who_expects_them(executed: list[str]) -> None:
    importlib.import_module("sw_last")
    assert executed == ["sw_one", "sw_many", "sw_last"]
