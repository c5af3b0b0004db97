"""What Slurm's commands print."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.slurm.inventory import (
    COLUMNS,
    SlurmNode,
    find_foreign,
    make_inventory,
    read_nodes,
    sort_nodes,
)
from containers.slurm.parsing import (
    SEPARATOR,
    SlurmAway,
    count_gpus,
    make_format,
    read_gpus,
    read_hosts,
    read_number,
    read_status,
    read_table,
)
from predictor.errors import InputError
from solver.inventory import Pool


def line(*fields: str) -> str:
    """A row of `sinfo`, as it prints it: columns are padded and cut in bytes."""
    ended = zip(fields, COLUMNS.values(), strict=True)
    row = b"".join(field.encode()[:width].ljust(width) + b"\x1f" for field, width in ended) + b"\n"
    return row.decode(errors="surrogateescape")


SINFO = (
    line("n1", "gpu:a100:4(S:0-1)", "gpu:a100:2(IDX:0-1)", "mixed", "none")
    + line("n3", "gpu:v100:2", "gpu:v100:0(IDX:N/A)", "idle+drain", "fan broken | ask Eve")
    + line("n2", "gpu:a100:4", "gpu:a100:0(IDX:N/A)", "idle", "none")
    + line("n2", "gpu:a100:4", "gpu:a100:0(IDX:N/A)", "idle", "none")
    + line("n4", "gpu:2,shard:8", "gpu:2(IDX:0-1),shard:0", "down+not_responding", "Not responding")
    + line("login", "(null)", "gpu:0", "idle", "none")
)
"""Six rows: a node in two partitions, one without GPUs, one whose GPUs have no type."""


def test_a_format_names_columns_with_widths() -> None:
    assert make_format({"JobID": 20, "Name": 9}) == "JobID:20\x1f,Name:9\x1f"


def test_nodes_have_their_gpus_and_problems() -> None:
    nodes = sort_nodes(read_nodes(SINFO))
    assert [(node.name, node.gpu_type, node.gpus, node.allocated) for node in nodes] == [
        ("n1", "a100", 4, 2),
        ("n2", "a100", 4, 0),
        ("n3", "v100", 2, 0),
        ("n4", "gpu", 2, 2),
    ]
    assert [node.problem for node in nodes] == [
        "",
        "",
        "Slurm says drain: fan broken | ask Eve",
        "Slurm says down, not responding: Not responding",
    ]
    assert make_inventory(nodes).pools == (
        Pool("a100", 8, 4),
        Pool("v100", 2, 2),
        Pool("gpu", 2, 2),
    )
    assert find_foreign(nodes, {"n1": 1, "n4": 2}) == {"n1": 1}


@pytest.mark.parametrize("state", ["inval", "idle+invalid_reg", "maint", "down", "unknown"])
def test_what_is_not_known_to_work_is_out_of_service(state: str) -> None:
    assert SlurmNode("n", "a", 1, 0, frozenset(state.split("+"))).problem


def test_a_node_of_two_types_is_refused() -> None:
    with pytest.raises(InputError, match=r"node n1.*a100, v100"):
        read_nodes(line("n1", "gpu:a100:2,gpu:v100:2", "", "idle", "none"))
    with pytest.raises(InputError, match="no nodes with GPUs"):
        make_inventory(())


@given(st.integers(1, len(SINFO) - 1))
def test_text_that_was_cut_off_is_refused(end: int) -> None:
    text = SINFO[:end]
    if text.endswith("\n"):
        assert len(read_nodes(text)) < len(read_nodes(SINFO))
    else:
        with pytest.raises(SlurmAway, match="sinfo"):
            read_nodes(text)


@given(st.integers(0, len(SINFO) - 2), st.sampled_from(["", SEPARATOR, "\n", "xx"]))
def test_garbled_text_is_refused(place: int, put: str) -> None:
    """A character was lost, or others came between: every column has the wrong width then."""
    text = SINFO[:place] + put + SINFO[place + (put == "") :]
    with pytest.raises(SlurmAway, match="sinfo"):
        read_nodes(text)


@pytest.mark.parametrize(
    "reason", ["Lüfter defekt", "a\nb", f"a{SEPARATOR}b", "ü" * 400, "x" * 400]
)
def test_reasons_may_be_any_text(reason: str) -> None:
    text = line("n1", "gpu:2", "gpu:0", "drain", reason) + line("n2", "gpu:2", "", "idle", "none")
    one, two = read_nodes(text)
    assert one.reason[:20] == " ".join(reason.split())[:20]
    assert (two.name, two.problem) == ("n2", "")


def test_a_field_that_fills_its_column_was_cut() -> None:
    with pytest.raises(SlurmAway, match="squeue cut off Name"):
        read_table("squeue", f"abcd{SEPARATOR}\n", {"Name": 4})


def test_hosts() -> None:
    assert read_hosts("squeue", "") == ()
    assert read_hosts("squeue", "n[1-3,07],login") == ("n1", "n2", "n3", "n07", "login")
    assert read_hosts("squeue", "r[1-2]n[08-10]x")[1:4] == ("r1n09x", "r1n10x", "r2n08x")
    for text in ("n[1-", "n1]", "n[3-1]", "n[a]", "n1,,n2", "n[1-999999999]", "a b", "(null)"):
        with pytest.raises(SlurmAway, match="squeue"):
            read_hosts("squeue", text)


@given(st.lists(st.integers(0, 9999), min_size=1, max_size=20, unique=True), st.integers(1, 4))
def test_hosts_are_read_as_written(numbers: list[int], width: int) -> None:
    wanted = tuple(f"node{number:0{width}d}" for number in numbers)
    listed = ",".join(f"{number:0{width}d}" for number in numbers)
    assert read_hosts("squeue", f"node[{listed}]") == wanted == read_hosts("x", ",".join(wanted))


def test_gpus() -> None:
    assert read_gpus("sinfo", "gpu:a100:4(S:0,2),gpu:2,nic:1,shard:a100:8") == {"a100": 4, "": 2}
    assert read_gpus("sinfo", "(null)") == {}
    assert count_gpus("squeue", "cpu=1,mem=100M,gres/gpu=6,gres/gpu:a100=4,gres/gpu:v100=2") == 6
    assert count_gpus("squeue", "node=1,gres/gpu:a100=4") == 4
    assert count_gpus("squeue", "N/A") == 0
    for text in ("gpu:a100", "gpu:x:y:4", "gpu:a100:4(S:0"):
        with pytest.raises(SlurmAway, match="GRES"):
            read_gpus("sinfo", text)
    for text in ("cpu", "gres/gpu=", "gres/gpu:a100=x", "gres/gpu=4,"):
        with pytest.raises(SlurmAway, match="TRES"):
            count_gpus("squeue", text)


def test_statuses_and_numbers() -> None:
    assert [read_status(text) for text in ("0", "19200", "9", "15")] == [0, 75, 137, 143]
    assert [read_status(text) for text in ("0:0", "75:0", "0:9")] == [0, 75, 137]
    for text in ("", "75:", "256:0", "0:128", "1:2:3", "-1", "99999999"):
        with pytest.raises(SlurmAway):
            read_status(text)
    with pytest.raises(SlurmAway, match="'N/A' as StartTime"):
        read_number("squeue", "StartTime", "N/A")
