"""What jobs write may be torn, garbled, repeated or absurd; what is reported of it never is."""

import json
import math
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.leasing.telemetry import LONGEST_LINE, JobLog, Log, News
from containers.leasing.timing import TimedLog
from predictor.allocation import Demand
from predictor.job import EpochReport, JobSpec, Mode
from tests.kinds import timed

EPOCHS = 6
SPEC = JobSpec(4, "LM", 10, 40, Demand.gang(1), Mode.GNS, EPOCHS, 100, 0.0)


def line(epoch: Any, size: Any = 10, seconds: Any = 2.0, **more: Any) -> bytes:
    entry = {"epoch": epoch, "batch_size": size, "seconds": seconds, **more}
    return json.dumps(entry).encode() + b"\n"


def stand(folder: Path, epoch: Any, step: Any = 0, size: Any = 10, seconds: Any = 0.0) -> None:
    entry = {"epoch": epoch, "step": step, "batch_size": size, "run_seconds": seconds}
    (folder / "progress.json").write_text(json.dumps(entry))


def add(folder: Path, text: bytes) -> None:
    with (folder / "telemetry.jsonl").open("ab") as file:
        file.write(text)


def read(
    log: Log, *, trained: bool = False, held_seconds: float = 0.0, most_seconds: float = math.inf
) -> News:
    return log.read(trained=trained, held_seconds=held_seconds, most_seconds=most_seconds)


def reported(log: JobLog, *, trained: bool = False) -> list[tuple[int, int, int, float]]:
    reports = read(log, trained=trained).reports
    assert all(report.job_id == 4 for report in reports)
    return [(report.epoch, report.epochs, report.batch_size, report.seconds) for report in reports]


def test_a_job_that_wrote_nothing_stands_at_its_beginning(tmp_path: Path) -> None:
    reports, stands, alive, _ = read(JobLog(tmp_path, SPEC))
    assert reports == ()
    assert (stands.epochs, stands.fraction, stands.batch_size) == (0, 0.0, 10)
    assert (stands.seconds, stands.steps_left) == (0.0, 60)
    assert alive  # that it was started is a sign of life


@pytest.mark.parametrize(
    ("texts", "reports"),
    [
        # Epochs of a batch size together, and once.
        ([line(0) + line(1, seconds=3.0) + line(2, 20)], [(0, 2, 10, 5.0), (2, 1, 20, 2.0)]),
        ([line(0), b"", line(1, 20)], [(0, 1, 10, 2.0), (1, 1, 20, 2.0)]),
        # A line once it is whole.
        ([line(0)[:1], line(0)[1:-1], line(0)[-1:]], [(0, 1, 10, 2.0)]),
        # Not again those that are trained again after a kill.
        ([line(0) + line(1), line(0) + line(1) + line(2)], [(0, 2, 10, 4.0), (2, 1, 10, 2.0)]),
        # Lines that were lost are made up for by the next.
        ([line(0) + line(3, 20)], [(0, 1, 10, 2.0), (1, 3, 20, 6.0)]),
    ],
)
def test_each_epoch_is_reported_once(
    tmp_path: Path, texts: list[bytes], reports: list[tuple[int, int, int, float]]
) -> None:
    log, found = JobLog(tmp_path, SPEC), []
    for text in texts:
        add(tmp_path, text)
        found += reported(log)
    assert found == reports
    assert reported(log) == []


def test_a_scheduler_that_died_goes_on_after_what_it_had_reported(tmp_path: Path) -> None:
    add(tmp_path, line(0) + line(1, 20) + line(2, 20))
    log = JobLog(tmp_path, SPEC, epochs=2, run_seconds=4.0)
    stand(tmp_path, 3, step=2, size=20, seconds=7.0)
    reports, stands, *_ = read(log)
    assert reports == (EpochReport(4, 2, 1, 20, 2.0),)
    assert (stands.seconds, stands.run_seconds) == (3.0, 7.0)
    assert (stands.epochs, stands.batch_size, stands.fraction) == (3, 20, 2 / 5)
    assert stands.steps_left == 3 * 5 - 2


def test_the_end_is_reported_by_the_progress_where_the_last_lines_were_lost(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC)
    add(tmp_path, line(0))
    stand(tmp_path, EPOCHS, seconds=10.0)
    assert reported(log) == [(0, 1, 10, 2.0)]  # more of it may yet be reported
    (last,) = reported(log, trained=True)
    assert last[:3] == (1, 5, 10)
    assert reported(log, trained=True) == []
    assert log.epochs == EPOCHS


GARBAGE = [
    b"\n",
    b"garbage\n",
    b"\xff\xfe\x00\n",
    b"null\n",
    b"7\n",
    b"[]\n",
    b"{}\n",
    b"[" * 50_000 + b"\n",
    line(0)[:-10] + b"\n",
    line("0"),
    line(True),
    line(0.0),
    line(-1),
    line(EPOCHS),
    line(10**30),
    line(0, "10"),
    line(0, 5),
    line(0, 41),
    line(0, 10**400),
    line(0, seconds=-1.0),
    line(0, seconds=math.nan),
    line(0, seconds=math.inf),
    line(0, seconds=1e300),
    line(0, seconds=10**400),
    line(0, seconds=[1]),
    line(0, seconds=None),
]


@pytest.mark.parametrize("garbage", GARBAGE, ids=lambda text: repr(text[:40]))
def test_garbage_is_passed_over(tmp_path: Path, garbage: bytes) -> None:
    log = JobLog(tmp_path, SPEC)
    add(tmp_path, garbage + line(0) + garbage)
    assert reported(log) == [(0, 1, 10, 2.0)]


def test_a_line_without_end_does_not_hold_up_what_follows(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC)
    add(tmp_path, b"x" * (LONGEST_LINE + 1))
    assert reported(log) == []
    add(tmp_path, b"x\n" + line(0))
    assert reported(log) == [(0, 1, 10, 2.0)]


@pytest.mark.parametrize(
    ("epoch", "step", "size", "seconds"),
    [
        (-1, 0, 10, 0.0),
        (0, -1, 10, 0.0),
        (0, 0, 0, 0.0),
        (0, 0, 10, -5.0),
        (0, 0, 10, math.nan),
        (0, 0, 10, 1e300),
        (0, 10**400, 10, 10**400),
        ([], 0, 10, 0.0),
        (math.inf, 0, 10, 0.0),
    ],
)
def test_absurd_progress_is_not_believed(
    tmp_path: Path, epoch: Any, step: Any, size: Any, seconds: Any
) -> None:
    log = JobLog(tmp_path, SPEC)
    stand(tmp_path, epoch, step, size, seconds)
    stands = read(log).progress
    assert (stands.epochs, stands.fraction, stands.batch_size) == (0, 0.0, 10)
    assert (stands.run_seconds, stands.steps_left) == (0.0, 60)


def test_time_and_progress_never_go_back(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC)
    add(tmp_path, line(0) + line(1))
    stand(tmp_path, 2, step=5, seconds=9.0)
    before = read(log).progress
    stand(tmp_path, 1, step=3, seconds=5.0)  # again from an older checkpoint
    _, after, alive, _ = read(log)
    assert (before.epochs, before.fraction, before.run_seconds) == (2, 0.5, 9.0)
    assert (after.epochs, after.run_seconds, after.seconds) == (2, 9.0, 0.0)
    assert alive


def signs(log: JobLog, folder: Path, *stands: tuple[Any, ...]) -> list[bool]:
    """Whether a job that stands here and then there shows signs of life."""
    found = []
    for stood in stands:
        stand(folder, *stood)
        found.append(read(log).alive)
    return found


@pytest.mark.parametrize(
    ("stood", "found"),
    [
        ([(0, 0), (0, 1), (0, 1), (0, 2), (0, 2), (1, 0)], [True, True, False, True, False, True]),
        # Other changes of the file are none.
        (
            [(1, 5), (1, 6), (1, 6, 10, 50.0), (1, 5, 20), (0, 9, 10, 60.0)],
            [True] * 2 + [False] * 3,
        ),
        # Steps and epochs that the job cannot have are one.
        ([(0, 1), (0, 10), (0, 11), (0, 10**9)], [True, True, False, False]),
        ([(EPOCHS + more, 10) for more in range(4)], [True, False, False, False]),
    ],
)
def test_a_sign_of_life_is_a_step_or_epoch_beyond_those_before(
    tmp_path: Path, stood: list[tuple[Any, ...]], found: list[bool]
) -> None:
    log = JobLog(tmp_path, SPEC)
    log.begin()
    assert signs(log, tmp_path, *stood) == found
    add(tmp_path, b"garbage\n" + line(7) + line(1, seconds=-1.0))
    os.utime(tmp_path / "progress.json")
    assert not read(log).alive
    add(tmp_path, line(0))
    assert read(log).alive  # of an epoch before


def test_a_job_that_goes_back_to_its_checkpoint_lives(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC)
    log.begin()
    add(tmp_path, line(0) + line(1))
    assert signs(log, tmp_path, (2, 8), (2, 9)) == [True, True]
    log.begin()  # its next lease
    assert signs(log, tmp_path, (2, 9), (1, 0), (1, 1), (1, 0), (1, 2), (2, 0)) == [
        *(False, True, True, False, True, True)
    ]


def test_a_job_that_a_new_scheduler_found_running_lives(tmp_path: Path) -> None:
    stand(tmp_path, 2, 9)
    log = JobLog(tmp_path, SPEC, epochs=2)
    assert signs(log, tmp_path, (2, 9), (2, 9), (1, 3), (1, 4)) == [True, False, True, True]


def test_steps_of_a_last_epoch_that_is_cut_short_are_left(tmp_path: Path) -> None:
    short = JobSpec(4, "LM", 10, 40, Demand.gang(1), Mode.GNS, 3, 100, 0.0, total_steps=25)
    log = JobLog(tmp_path, short)
    assert read(log).progress.steps_left == 25
    add(tmp_path, line(0) + line(1))
    stand(tmp_path, 2, 3)
    assert read(log).progress.steps_left == 2
    stand(tmp_path, 2, 1, size=20)
    assert read(log).progress.steps_left == 2


def test_a_job_cannot_have_trained_longer_than_it_could(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC, epochs=1, run_seconds=5.0)
    add(tmp_path, line(1, seconds=15.1) + line(1, seconds=15.0))
    stand(tmp_path, 2, seconds=15.1)
    reports, stands, *_ = read(log, most_seconds=10.0)
    assert reports == (EpochReport(4, 1, 1, 10, 15.0),)
    assert stands.run_seconds == 5.0
    stand(tmp_path, 2, step=1, seconds=15.1)
    add(tmp_path, line(2, seconds=1e9))
    reports, stands, *_ = read(log, most_seconds=10.0)
    assert reports == ()
    assert (stands.seconds, stands.run_seconds) == (15.1 - 5.0, 15.1)


def test_an_epoch_that_began_before_the_last_look_is_believed(tmp_path: Path) -> None:
    log = JobLog(tmp_path, SPEC)
    for _ in range(3):
        assert read(log, most_seconds=10.0).reports == ()
    add(tmp_path, line(0, seconds=25.0))
    assert read(log, most_seconds=0.0).reports == (EpochReport(4, 0, 1, 10, 25.0),)


@pytest.mark.parametrize("garbage", [b"\n", b"x\n"], ids=repr)
@pytest.mark.slow
def test_a_flood_of_lines_does_not_hold_up_the_round(tmp_path: Path, garbage: bytes) -> None:
    log = JobLog(tmp_path, SPEC)
    add(tmp_path, garbage * (2**20 // len(garbage)) + line(0))
    assert reported(log) == []  # the rest is read the next time
    found = [report for _ in range(4) for report in reported(log)]
    assert found == [(0, 1, 10, 2.0)]


@pytest.mark.parametrize("name", ["telemetry.jsonl", "progress.json"])
@pytest.mark.parametrize("kind", ["pipe", "link", "device", "folder"])
def test_what_is_no_file_is_not_read(tmp_path: Path, name: str, kind: str) -> None:
    path, other = tmp_path / name, tmp_path / "other"
    other.write_bytes(line(0))
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(other if kind == "link" else "/dev/zero")
    reports, stands, *_ = read(JobLog(tmp_path, SPEC))
    assert reports == ()
    assert stands.epochs == 0


@st.composite
def written(draw: st.DrawFn) -> tuple[list[bytes], list[tuple[Any, ...]]]:
    """What a job writes between two looks, lines and progress, most of it in good order."""
    chunks, stands = [], []
    epochs = st.one_of(st.integers(0, EPOCHS - 1), st.integers(-2, 10**20))
    seconds = st.one_of(st.floats(0, 1e9), st.floats(), st.integers())
    sizes = st.one_of(st.integers(10, 40), st.integers(-5, 10**6))
    lines = st.builds(line, epochs, sizes, seconds)
    for _ in range(draw(st.integers(1, 6))):
        text = b"".join(draw(st.lists(st.one_of(lines, lines, st.binary(max_size=20)), max_size=5)))
        cut = draw(st.integers(0, len(text))) if draw(st.booleans()) else len(text)
        chunks.append(text[:cut])
        stands.append((draw(epochs), draw(st.integers(-1, 10**6)), draw(sizes), draw(seconds)))
    return chunks, stands


@given(written(), st.integers(0, EPOCHS), st.booleans())
def test_whatever_is_written_what_is_reported_adds_up(
    given_: tuple[list[bytes], list[tuple[Any, ...]]], before: int, trained: bool
) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        log = JobLog(folder, SPEC, before, 5.0)
        epochs, run_seconds, place = before, 5.0, (before, 0.0)
        chunks, stands = given_
        for number, (text, stood) in enumerate(zip(chunks, stands, strict=True)):
            add(folder, text)
            stand(folder, *stood)
            last = trained and number == len(chunks) - 1
            reports, now, *_ = read(log, trained=last)
            for report in reports:
                assert report.epoch == epochs
                assert report.epochs >= 1
                assert 10 <= report.batch_size <= 40
                assert 0.0 <= report.seconds < math.inf
                epochs += report.epochs
            assert now.epochs == epochs <= EPOCHS
            assert 0.0 <= now.fraction <= 1.0
            assert place[0] <= now.epochs
            assert run_seconds <= now.run_seconds < math.inf
            assert now.seconds == now.run_seconds - run_seconds
            assert 0 <= now.steps_left <= 60
            run_seconds, place = now.run_seconds, (now.epochs, now.fraction)


def test_a_long_job_that_goes_on_or_ends_is_read_whole(tmp_path: Path) -> None:
    many = 20_000
    spec = JobSpec(4, "LM", 10, 40, Demand.gang(1), Mode.GNS, many, 100, 0.0)
    add(tmp_path, b"".join(line(epoch, 10 if epoch < 15_000 else 20) for epoch in range(many - 1)))
    goes_on = JobLog(tmp_path, spec, epochs=1)  # one look
    assert reported(goes_on) == [(1, 14_999, 10, 29_998.0), (15_000, 4_999, 20, 9_998.0)]

    new = tmp_path / "new"
    new.mkdir()
    log = JobLog(new, spec)
    assert reported(log) == []
    add(new, (tmp_path / "telemetry.jsonl").read_bytes() + line(many - 1, 20))
    stand(new, many, size=20, seconds=40_000.0)
    assert reported(log, trained=True) == [(0, 15_000, 10, 30_000.0), (15_000, 5_000, 20, 10_000.0)]


def test_a_timed_job_that_removes_its_progress_is_at_0_again(tmp_path: Path) -> None:
    log, file = TimedLog(tmp_path, timed(0, 1.0, limit=100.0)[0]), tmp_path / "progress.json"

    def share() -> float:
        return read(log, held_seconds=1.0).progress.share

    assert share() == 0.0
    for text, found in (('{"share": 0.4}', 0.4), ('{"sha', 0.4), ('{"share": 7}', 0.4)):
        file.write_text(text)
        assert share() == found
    file.unlink()
    assert share() == 0.0
