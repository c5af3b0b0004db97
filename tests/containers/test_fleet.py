"""Work on the hosts of a cluster is divided into parts, a bounded number of them."""

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from containers.docker.fleet import MOST_PARTS, Fleet
from containers.docker.nodes import Gpu, Node, Nodes


def fleet(hosts: int, storage: Path) -> Fleet:
    nodes = [
        Node(f"n{i:02}", "unix:///none", "cpu", "none", (Gpu(cpus=1.0),)) for i in range(hosts)
    ]
    return Fleet(Nodes(tuple(nodes), storage, "1000:1000"), "run")


def divided(hosts: int, storage: Path) -> tuple[list[int], Mapping[str, Any]]:
    """The results of work on two items a host, and the parts that the mapper got."""
    seen: dict[str, Any] = {}

    def each(name: str, function: Any, parts: Mapping[str, Any]) -> list[Any]:
        assert name == "read"
        seen.update(parts)
        return [function(part) for part in parts.values()]

    items = [*range(hosts)] * 2
    with closing(fleet(hosts, storage)) as opened:
        return opened.map("read", lambda item: item + 100, items, lambda item: item, each), seen


def test_the_items_of_each_host_are_a_part(tmp_path: Path) -> None:
    results, parts = divided(3, tmp_path)
    assert results == [100, 101, 102] * 2
    assert parts == {"n00": [0, 3], "n01": [1, 4], "n02": [2, 5]}


def test_a_single_host_is_not_divided(tmp_path: Path) -> None:
    assert divided(1, tmp_path) == ([100, 100], {})


def test_consecutive_hosts_share_a_part_if_there_are_many(tmp_path: Path) -> None:
    results, parts = divided(40, tmp_path)
    assert results == [item + 100 for item in range(40)] * 2
    assert [*parts][:2] == ["n00 to n02", "n03 to n05"]
    assert [*parts][-1] == "n39"
    assert len(parts) == 14 <= MOST_PARTS
