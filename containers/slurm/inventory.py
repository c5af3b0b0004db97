"""The nodes of a Slurm partition, as the nodes of a cluster."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from containers.slurm.commands import Commands
from containers.slurm.parsing import read_gpus, read_table
from predictor.errors import InputError
from predictor.throughput import UNTYPED
from solver.inventory import Inventory, Pool

COLUMNS = {"NodeList": 65, "Gres": 200, "GresUsed": 200, "StateComplete": 120, "Reason": 300}
"""Columns of `sinfo`, with their widths."""

CUT = frozenset({"Reason"})
"""Columns of which the beginning is enough."""

IN_SERVICE = frozenset({"idle", "mixed", "allocated", "completing", "planned", "reserved"})
"""States of nodes that start jobs."""


@dataclass(frozen=True, slots=True)
class SlurmNode:
    """A node of a partition.

    Attributes:
        gpu_type: Type of its GPUs, by its GRES.
        gpus: Number of its GPUs.
        allocated: GPUs that jobs hold, anyone's.
        state: Its state and flags in Slurm's words.
        reason: Why it is out of service, in an administrator's words; empty if none were given.
    """

    name: str
    gpu_type: str
    gpus: int
    allocated: int
    state: frozenset[str]
    reason: str = ""

    @property
    def problem(self) -> str:
        """What keeps it out of service, in words; empty if nothing."""
        bad = sorted(self.state - IN_SERVICE)
        if not bad:
            return ""
        why = f": {self.reason}" if self.reason else ""
        return f"Slurm says {', '.join(bad).replace('_', ' ')}{why}"


def read_nodes(text: str) -> tuple[SlurmNode, ...]:
    """Read the nodes with GPUs from what `sinfo` printed; a node of two partitions is there once.

    Raises:
        InputError: A node has GPUs of two types.
        SlurmAway: The text cannot be read.
    """
    return _to_nodes(read_table("sinfo", text, COLUMNS, CUT))


def list_nodes(commands: Commands, partition: str = "") -> tuple[SlurmNode, ...]:
    """Return the nodes of a partition that have GPUs, by default of all partitions.

    Raises:
        InputError: A node has GPUs of two types.
        Refused: Slurm refuses to tell.
        SlurmAway: It does not answer.
    """
    of = f"--partition={partition}" if partition else "--all"
    return _to_nodes(commands.table("sinfo", COLUMNS, "--Node", of, cut=CUT))


def _to_nodes(rows: Iterable[Mapping[str, str]]) -> tuple[SlurmNode, ...]:
    nodes: dict[str, SlurmNode] = {}
    for row in rows:
        name = row["NodeList"]
        gpus = {kind: count for kind, count in read_gpus("sinfo", row["Gres"]).items() if count}
        if not gpus:
            continue
        if len(gpus) > 1:
            kinds = ", ".join(sorted(gpus))
            remedy = "give a partition without it"
            raise InputError(f"node {name}", f"has GPUs of several types: {kinds}", remedy)
        ((kind, count),) = gpus.items()
        reason = " ".join(row["Reason"].split())
        nodes[name] = SlurmNode(
            name=name,
            gpu_type=kind or UNTYPED,
            gpus=count,
            allocated=sum(read_gpus("sinfo", row["GresUsed"]).values()),
            state=frozenset(row["StateComplete"].lower().split("+")),
            reason="" if reason in ("none", "(null)") else reason,
        )
    return tuple(nodes.values())


def sort_nodes(nodes: Sequence[SlurmNode]) -> tuple[SlurmNode, ...]:
    """Order nodes such that those of a kind follow each other, as a cluster numbers them."""
    kinds = list(dict.fromkeys((node.gpu_type, node.gpus) for node in nodes))
    return tuple(sorted(nodes, key=lambda node: kinds.index((node.gpu_type, node.gpus))))


def make_inventory(nodes: Sequence[SlurmNode]) -> Inventory:
    """Return the inventory of nodes in their order by `sort_nodes`.

    Raises:
        InputError: There are none.
    """
    if not nodes:
        raise InputError("slurm", "has no nodes with GPUs", "compare sinfo --Format=NodeList,Gres")
    kinds = Counter((node.gpu_type, node.gpus) for node in nodes)
    return Inventory(tuple(Pool(kind, gpus * n, gpus) for (kind, gpus), n in kinds.items()))


def find_foreign(nodes: Iterable[SlurmNode], own: Mapping[str, int]) -> dict[str, int]:
    """Return the GPUs that others hold, by the names of the nodes where they hold any.

    `own` are the GPUs that jobs of ours hold, by node.
    """
    held = {node.name: node.allocated - own.get(node.name, 0) for node in nodes}
    return {name: gpus for name, gpus in held.items() if gpus > 0}
