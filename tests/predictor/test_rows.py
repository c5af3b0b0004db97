"""Memories as JSON."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from predictor.rows import from_json, to_json


class Mark(NamedTuple):
    x: int
    parts: tuple[float, ...] = ()


@dataclass(frozen=True)
class Memory:
    count: int = 0
    marks: Mapping[tuple[int, ...], Mark] = field(default_factory=dict)


def test_memories_are_read_as_they_were_written() -> None:
    memory = Memory(3, {(1,): Mark(2, (0.5,)), (1, 2): Mark(7)})
    assert to_json(memory) == '{"count":3,"marks":[[[1],[2,[0.5]]],[[1,2],[7,[]]]]}'
    assert from_json(Memory, to_json(memory)) == memory
    assert from_json(Memory, "") == Memory()
