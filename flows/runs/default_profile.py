"""Default profiles: throughput tables shipped with Shockwave."""

from dataclasses import replace
from pathlib import Path

from containers.docker.nodes import Nodes
from flows.runs.cluster_file import AnyCluster
from flows.runs.workload_source import Source
from predictor.errors import InputError
from warehouse.workloads.kinds import Format
from warehouse.workloads.tables import MEASURED, read_throughput_table

PROFILES = Path(__file__).parents[2] / "containers" / "profiles"
"""Throughput tables measured with the trainer, by GPU type."""


def add_default_profile(source: Source, nodes: AnyCluster) -> Source:
    """Add the default profile of the nodes' GPU type to a source that has none.

    A default table has one GPU type; nodes of several types need a table measured on them.

    Raises:
        InputError: The table was measured on emulated GPUs with other shares of processors.
    """
    gpu_type, *others = nodes.inventory.types
    known = PROFILES / f"{gpu_type}.json"
    public = source.trace is not None and source.format == Format.PUBLIC
    if others or not public or source.profile is not None or not known.exists():
        return source
    emulating = nodes.nodes if isinstance(nodes, Nodes) else ()
    gpus = {gpu for node in emulating for gpu in node.gpus}
    shares = {f"{gpu.cpus:g} cpus" for gpu in gpus if not gpu.device}
    measured = set(read_throughput_table(known)[MEASURED][gpu_type]["gpus"])
    if shares and shares != measured:
        raise InputError(
            "profile",
            f"missing, and the table of {gpu_type} shipped with Shockwave was measured on slots of "
            f"{', '.join(sorted(measured))}, not of {', '.join(sorted(shares))}",
            "measure a table with shockwave cluster profile",
        )
    return replace(source, profile=known)
