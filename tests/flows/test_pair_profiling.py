"""Profiles of pairs: the measured pairs, the rates from their epochs, and their tables."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from containers.leasing.telemetry import BACKLOG_BYTES, LINES
from containers.runtime import ResumePoint, Terms
from containers.virtual.faithful import FaithfulFactory
from flows.runs.pair_profiling import (
    MeasuredPair,
    add_pairs,
    list_pairs,
    measure_pair,
    measure_rates,
)
from flows.runs.profiling import Combination, make_key
from predictor.errors import InputError
from warehouse.workloads.tables import read_throughputs

ONE = Combination("LM", 16, 2)


def test_pairs_are_of_as_many_gpus_and_two_of_a_kind_are_one() -> None:
    two, one = ONE, replace(ONE, scale_factor=1)
    assert list_pairs([one, two, replace(two, batch_size=32)]) == [
        (one, one),
        (two, two),
        (two, replace(two, batch_size=32)),
        (replace(two, batch_size=32), replace(two, batch_size=32)),
    ]


def epochs_of(steps: float, seconds: float, ends: Sequence[float]) -> list[dict[str, float]]:
    return [{"at": at, "steps": steps, "seconds": seconds} for at in ends]


def test_rates_of_a_pair_are_of_the_time_in_which_both_train() -> None:
    slow = epochs_of(10, 4.0, [10.0, 14.0, 18.0, 22.0])  # the first one warms up
    fast = epochs_of(10, 1.0, [12.0, *range(13, 19)])
    fast += epochs_of(10, 0.5, [18.5, 19.0])  # alone by then
    assert measure_rates(slow[:3], fast[:-2], (1, 1), (1, 1)) == (10 / 4.0, 10 / 1.0)
    assert measure_rates(slow[:3], fast, (1, 1), (2, 1)) is None
    assert measure_rates(slow, fast[:4], (1, 1), (1, 1)) is None
    assert measure_rates(slow[:1], [], (1, 1), (1, 1)) is None


def write_epochs(file: Path, count: int, at: float, seconds: float, pad: str = "") -> None:
    lines = [
        {"at": at + n * seconds, "steps": 10, "seconds": seconds, "x": pad} for n in range(count)
    ]
    with file.open("a") as out:
        out.writelines(f"{json.dumps(line)}\n" for line in lines)


def test_a_pair_is_measured_by_the_last_epochs_of_both_for_a_bounded_time(tmp_path: Path) -> None:
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    pair = replace(ONE, batch_size=32), ONE
    runtime = FaithfulFactory([]).open(Terms("r", 2.0), ResumePoint())
    write_epochs(folders[0] / LINES, 3, 2e6, 4.0)
    found = measure_pair(runtime, pair, folders, 2, 10)  # the other job never reports
    assert found == MeasuredPair(pair, problem="too few epochs were reported in 3600 s")
    pad = "x" * 40_000  # more than is read before both train
    write_epochs(folders[1] / LINES, BACKLOG_BYTES // 40_000 + 1, 1e6, 1.0, pad)
    write_epochs(folders[1] / LINES, 20, 2e6, 1.0)
    found = measure_pair(runtime, pair, folders, 2, 10)
    assert found == MeasuredPair(pair, (10 / 4.0, 10 / 1.0))


def test_measured_pairs_are_read_and_published_ones_are_left_out(tmp_path: Path) -> None:
    one, other = Combination("LM", 16, 2), Combination("ResNet-18", 32, 2)
    alone = {make_key(one): {"null": 8.0}, make_key(other): {"null": 4.0}}
    found = [
        MeasuredPair((one, other), (5.0, 3.0)),
        MeasuredPair((one, one), (4.0, 4.0)),
        MeasuredPair((other, other), problem="out of memory"),
    ]
    table = add_pairs({"cpu": alone, "measured": {"cpu": {}}}, found, "cpu")
    out = tmp_path / "p.json"
    out.write_text(json.dumps(table))
    assert read_throughputs(out, ("cpu",)).pairs == {
        ("LM", 16, "ResNet-18", 32, "cpu", 2): 5.0,
        ("ResNet-18", 32, "LM", 16, "cpu", 2): 3.0,
        ("LM", 16, "LM", 16, "cpu", 2): 4.0,
    }
    out.write_text(json.dumps({**table, "measured": {}}))
    assert read_throughputs(out, ("cpu",)).pairs == {}
    table["cpu"][make_key(one)][make_key(other)] = [80.5, 3.0]
    out.write_text(json.dumps(table))
    with pytest.raises(InputError, match=r"80\.5 beside another job is far above 8 alone; give"):
        read_throughputs(out, ("cpu",))
    table["cpu"][make_key(one)][make_key(other)] = [5.0]
    out.write_text(json.dumps(table))
    with pytest.raises(InputError, match="is not a pair like"):
        read_throughputs(out, ("cpu",))
