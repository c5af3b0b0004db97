"""Output of jobs, continued where a reader left off."""

import json
from contextlib import closing
from itertools import groupby
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.docker.logs import append_log, log_file
from containers.docker.nodes import Nodes
from containers.docker.rendering import container_name
from containers.slurm.cluster import SlurmSite
from flows.api import job_logs
from flows.api.job_logs import MOST_END, MOST_PART, MOST_TAIL, JobLogs
from flows.api.log_format import format_logs, parse_logs
from flows.runs.cluster_file import read_cluster_file

CLUSTER = """
storage = "{folder}"
user = "1000:1000"
[[nodes]]
name = "absent"
endpoint = "unix://{folder}/no.sock"
gpu_type = "cpu"
image = "none"
slots = [{{ cpus = 1.0 }}]
"""
RUN = "service-000000-1"


@pytest.fixture
def nodes(tmp_path: Path) -> Nodes:
    """A cluster whose only host does not answer."""
    (file := tmp_path / "cluster.toml").write_text(CLUSTER.format(folder=tmp_path))
    return read_cluster_file(file)


@pytest.fixture
def log(nodes: Nodes) -> Path:
    """The file of a job's log, in its folder."""
    file = log_file(nodes.folder(RUN, 1))
    file.parent.mkdir(parents=True)
    return file


def test_no_output_is_missed_or_repeated(nodes: Nodes, log: Path) -> None:
    long = b"x" * (MOST_PART + 5) + b"\xff\n"
    append_log(log, "first", long)
    append_log(log, "second", b"")
    with closing(JobLogs(nodes, RUN, 1)) as found:
        parts = [*found.read_new()]
        assert [name for name, _ in parts] == ["first", "first", "second"]
        assert b"".join(format_logs(parts)) == log.read_bytes()
        assert [*found.read_new()] == []
        places = found.places
        append_log(log, "third", b"3\n")
        assert [*found.read_new()] == [("third", b"3\n")]
    with closing(JobLogs(nodes, RUN, 1, places)) as again:
        assert [*again.read_new()] == [("third", b"3\n")]
    with closing(JobLogs(nodes, RUN, 1, {"first": (MOST_PART, "")})) as again:
        assert next(again.read_new()) == ("first", long[MOST_PART:])
    with closing(
        JobLogs(nodes, RUN, 1, {"second": (1, "")})
    ) as again:  # what is before it is known
        assert [*again.read_new()] == [("third", b"3\n")]
    assert b"".join(job_logs.read_logs(nodes, RUN, 1)) == log.read_bytes()


@pytest.mark.parametrize(
    ("tail", "shown"), [(0, b""), (2, b"3\n4\n"), (3, b"2\r2\n3\n4\n"), (9, b"1\n2\r2\n3\n4\n")]
)
def test_the_last_lines_come_first_and_then_all(
    nodes: Nodes, log: Path, tail: int, shown: bytes
) -> None:
    append_log(log, "first", b"1\n2\r2\n")
    append_log(log, "second", b"3\n4\n")
    with closing(JobLogs(nodes, RUN, 1, tail=tail)) as found:
        assert b"".join(text for _, text in found.read_new()) == shown
        places = found.places
        append_log(log, "third", b"5\n6\n")
        assert [*found.read_new()] == [("third", b"5\n6\n")]
    with closing(JobLogs(nodes, RUN, 1, places, tail=1)) as again:  # a client that reconnects
        assert [*again.read_new()] == [("third", b"5\n6\n")]


def test_the_place_in_many_containers_fits_a_proxy_s_header(nodes: Nodes, log: Path) -> None:
    for number in range(100):
        append_log(log, container_name(RUN, 123_456, 1_000_000 + number, 10), b"x" * 10**4)
    with closing(JobLogs(nodes, RUN, 1)) as found:
        assert len([*found.read_new()]) == 100
        place = found.places
    assert len(json.dumps(place, separators=(",", ":"))) < 6 * 2**10
    with closing(JobLogs(nodes, RUN, 1, place)) as again:
        assert [*again.read_new()] == []


def test_following_goes_on_when_a_log_loses_its_begin(nodes: Nodes, log: Path) -> None:
    lines = [b"step %6d\n" % number for number in range(70_000)]
    window = 2 * MOST_END // len(lines[0])

    def look(first: int) -> bytes:
        log.write_bytes(b"--- only\n" + b"".join(lines[first : first + window]))
        return b"".join(part for _, part in found.read_new())

    with closing(JobLogs(nodes, RUN, 1)) as found:
        parts = [look(first) for first in (0, 1, 700, 700, window // 2)]
        assert b"".join(parts) == b"".join(lines[: window // 2 + window])
        log.write_bytes(b"--- only\n")  # gone from Docker, not yet kept
        assert [*found.read_new()] == []
        assert look(window // 2 + 3) == b"".join(lines[window // 2 :][window : window + 3])
        assert look(3 * window + 5) == b"".join(lines[3 * window + 5 : 4 * window + 5])
        places = found.places
    with closing(JobLogs(nodes, RUN, 1, places)) as found:  # it knows its place, and the last text
        assert look(3 * window + 5) == b""
        assert look(3 * window + 6) == lines[4 * window + 5]
    with closing(JobLogs(nodes, RUN, 1, places)) as found:  # the log moved on meanwhile
        assert look(3 * window + 9) == b"".join(lines[4 * window + 5 : 4 * window + 9])
    assert all(len(tail) <= MOST_TAIL * 2 for _, tail in places.values())


def test_lines_have_their_containers() -> None:
    one, two = (container_name(RUN, 1, number, 0) for number in (0, 3))
    parts = [(one, b"from 0\nto 2"), (one, b"9\n--- \xff"), (two, b"from 29\n"), (two, b"to")]
    text = b"".join(format_logs(parts))
    expected = [(one, "from 0"), (one, "to 29"), (one, "--- \ufffd"), (two, "from 29"), (two, "to")]
    assert (
        [*parse_logs([text])]
        == [*parse_logs(text[n : n + 1] for n in range(len(text)))]
        == expected
    )


LINES = st.lists(
    st.text("-x \n") | st.sampled_from(["--- other\n", "--- --- other\n", "---", "\n"])
).map(lambda found: "".join(found).encode())


@given(st.lists(st.tuples(st.sampled_from(["one", "two"]), LINES), max_size=6), st.data())
def test_no_job_prints_the_name_of_a_container(
    parts: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    cut = [
        (name, piece)
        for name, text in parts
        for at in [data.draw(st.integers(0, len(text)))]
        for piece in (text[:at], text[at:])
    ]
    expected = [
        (name, line.decode())
        for name, texts in groupby(parts, lambda part: part[0])
        for text in [b"".join(text for _, text in texts)]
        for line in text.removesuffix(b"\n").split(b"\n") * bool(text)
    ]
    assert [*parse_logs(format_logs(cut))] == [*parse_logs(format_logs(parts))] == expected


def test_kept_logs_are_those_that_were_printed_and_those_from_before_are_read(
    nodes: Nodes, log: Path
) -> None:
    log.write_bytes(b"--- before\n--- --- a\nb\n")
    kept = {"first": b"--- second\n--- --- x\n", "second": b"2\n", "third": b"--- first\n"}
    for name, text in kept.items():
        append_log(log, name, text)
    with closing(JobLogs(nodes, RUN, 1)) as found:
        assert dict(found.read_new()) == {"before": b"--- a\nb\n"} | kept


def test_a_slurm_jobs_output_is_read_by_lease_and_from_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = SlurmSite(tmp_path)
    file = log_file(site.folder(RUN, 1))
    site.folder(RUN, 1).mkdir(parents=True)
    one, two = (f"shockwave-{RUN}-job-1-round-{number}.1" for number in (0, 4))
    file.write_text(f"\n--- {one}\n--- a/x.py\n--- --- b\nno end\n--- {two}\n2\n")

    def read() -> dict[str, bytes]:
        with closing(JobLogs(site, RUN, 1)) as found:
            return dict(found.read_new())

    assert read() == {one: b"--- a/x.py\n--- --- b\nno end", two: b"2\n"}
    monkeypatch.setattr(job_logs, "MOST_READ", 60)
    cut = b"(cut: only the last 60 bytes of the output are shown)\n"
    assert read() == {"earlier-output": cut + b"no end", two: b"2\n"}
    (site.folder(RUN, 1) / "lease").write_text(two)
    with file.open("a") as log:
        log.write("x" * 100 + "\nlast\n")
    assert read() == {two: cut + b"last\n"}
