"""Every reader finds the same jobs, whatever the compression, delimiter, encoding and order."""

import bz2
import csv
import gzip
import io
import lzma
import random
import zipfile
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pyarrow as pa
import pytest

from flows.runs.workload_source import Source
from predictor.errors import InputError
from tests.warehouse.logs.samples import SAMPLES, Sample
from warehouse.workloads.logs import READERS
from warehouse.workloads.logs.log import ClusterLog


def _zip(text: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/LICENSE", b"free")
        archive.writestr("set/log.csv", text)
    return packed.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "plain": bytes,
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
    "zip": _zip,
    "zst": lambda text: pa.Codec("zstd").compress(text, asbytes=True),
}


def write(
    path: Path, sample: Sample, delimiter: str = ",", ending: str = "\n", shuffle: bool = False
) -> bytes:
    """Return the sample as a file's text: quoted, unless its delimiter is one of `sacct`'s."""
    rows = [
        row if isinstance(row, list) else next(csv.reader([row]))
        for row in sample.rows  # type: ignore[list-item]
    ]
    order = [*range(len(sample.header))]
    if shuffle:
        random.Random(1).shuffle(order)
    text = io.StringIO()
    if delimiter in "|\x1f":
        for row in ([*sample.header], *rows):
            text.write(delimiter.join(row[at] for at in order) + ending)
    else:
        writer = csv.writer(text, delimiter=delimiter, lineterminator=ending)
        writer.writerows([row[at] for at in order] for row in ([*sample.header], *rows))
    content = text.getvalue().encode()
    path.write_bytes(content)
    return content


def read(path: Path, sample: Sample, **options: str) -> ClusterLog:
    return Source(trace=path, format=sample.format, **options).read_log()  # type: ignore[arg-type]


def assert_jobs(log: ClusterLog, sample: Sample) -> None:
    first = min(job.arrival_seconds for job in log.jobs)
    found = [
        (job.arrival_seconds - first, job.seconds, job.gpus, job.tenant, job.state)
        for job in log.jobs
    ]
    assert found == [*sample.jobs]
    assert log.left_out == sample.left_out


@pytest.fixture(params=SAMPLES, ids=lambda sample: sample.format.value)
def sample(request: pytest.FixtureRequest) -> Sample:
    found: Sample = request.param
    return found


def test_all_tables_have_a_sample() -> None:
    assert {sample.format for sample in SAMPLES} | {"philly-json"} == {*READERS}


@pytest.mark.parametrize("delimiter", [",", "\t", "|", ";", "\x1f"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_the_same_jobs(tmp_path: Path, sample: Sample, delimiter: str, encoding: str) -> None:
    path = tmp_path / "log.csv"
    for shuffle, ending in product([False, True], ["\n", "\r\n"]):
        content = write(path, sample, delimiter, ending, shuffle).decode().encode(encoding)
        for pack in PACKED.values():
            path.write_bytes(pack(content))
            assert_jobs(read(path, sample), sample)


def test_only_takes_patterns_and_several_values(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "log.csv"
    write(path, sample)
    only, left = sample.only
    assert len(read(path, sample, only=only).jobs) == left


def test_a_missing_column_is_named(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "log.csv"
    write(path, sample)
    header, lines = path.read_text().split("\n", 1)
    for name in (
        "Submit",
        "submit_time",
        "submission_time",
        "time_submit",
        "timestamp",
        "job_name",
    ):
        header = header.replace(name, "other")
    path.write_text(f"{header}\n{lines}")
    with pytest.raises(InputError, match=r"log\.csv:1: missing column '.*'; the header has"):
        read(path, sample)


def test_a_header_apart(tmp_path: Path, sample: Sample) -> None:
    path, header = tmp_path / "log.csv", tmp_path / "log.header"
    write(path, sample)
    first, rest = path.read_text().split("\n", 1)
    path.write_text(rest)
    header.write_text(first + "\n")
    assert_jobs(read(path, sample, header=str(header)), sample)
    assert_jobs(read(path, sample, header=first), sample)


def test_run_times_are_those_of_the_file(tmp_path: Path, sample: Sample) -> None:
    path = tmp_path / "log.csv"
    write(path, sample)
    workload = Source(trace=path, format=sample.format).open()
    by_id = sorted(zip(workload.specs, workload.truths, strict=True), key=lambda job: job[0].job_id)
    for (spec, truth), (_, seconds, gpus, *_) in zip(by_id, sample.jobs, strict=True):
        assert abs(truth.isolated_seconds - seconds) < 1.0
        assert spec.mode == "static"
        assert spec.demand.least == gpus * workload.slots
