"""A job's folder is measured, whatever is in it."""

import os
from pathlib import Path

import pytest

from containers.leasing import folder as measured
from containers.leasing.folder import describe_excess

KIB = 1024


def fill(path: Path, kib: int) -> None:
    path.write_bytes(os.urandom(kib * KIB))


def test_what_is_below_the_limit_is_none_of_its_business(tmp_path: Path) -> None:
    assert describe_excess(tmp_path / "missing", KIB) == ""
    fill(tmp_path / "checkpoint.pt", 64)
    assert describe_excess(tmp_path, 128 * KIB) == ""


def test_files_count_wherever_they_are_and_by_the_space_that_they_take(tmp_path: Path) -> None:
    below = tmp_path / "a" / ".b"
    below.mkdir(parents=True)
    for name in range(8):
        fill(below / str(name), 16)
    assert describe_excess(tmp_path, 64 * KIB).startswith("its folder takes more than ")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    assert describe_excess(tmp_path, 2**20) == ""


def test_links_are_not_followed_and_pipes_not_opened(tmp_path: Path) -> None:
    other, job = tmp_path / "other", tmp_path / "job"
    other.mkdir()
    job.mkdir()
    fill(other / "large", 512)
    (job / "link").symlink_to(other)
    (job / "file").symlink_to(other / "large")
    (job / "self").symlink_to(job)
    os.mkfifo(job / "pipe")
    assert describe_excess(job, 64 * KIB) == ""


def test_many_files_are_too_many(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured, "MOST_FILES", 50)
    for name in range(50):
        (tmp_path / str(name)).touch()
    assert describe_excess(tmp_path, KIB * KIB) == ""
    (tmp_path / "one-more").touch()
    assert describe_excess(tmp_path, KIB * KIB) == "its folder holds more than 50 files"


def test_what_a_job_hides_is_beyond_the_limit(tmp_path: Path) -> None:
    deep = os.open(tmp_path, os.O_RDONLY)
    for _ in range(30):  # a path longer than any that can be opened
        os.mkdir("x" * 200, dir_fd=deep)
        below = os.open("x" * 200, os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = below
    os.close(deep)
    assert (
        describe_excess(tmp_path, KIB * KIB) == "its folder cannot be measured: File name too long"
    )
