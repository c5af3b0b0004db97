"""The throughput table that comes with Shockwave for a cluster's GPUs."""

from dataclasses import replace
from pathlib import Path

from containers.docker.nodes import Nodes
from flows.runs.workload_source import Source
from predictor.errors import InputError
from warehouse.workloads.trace import MEASURED, read_throughput_table

PROFILES = Path(__file__).parents[2] / "containers" / "profiles"
"""Throughput tables that were measured with the trainer, one for each GPU type."""


def with_default_profile(source: Source, nodes: Nodes) -> Source:
    """A trace that came without a profile, with the one that is known of the nodes' GPUs.

    Raises:
        InputError: The table is of emulated GPUs that have other shares of processors.
    """
    gpu_type = nodes.nodes[0].gpu_type
    known = PROFILES / f"{gpu_type}.json"
    if source.trace is None or source.profile is not None or not known.exists():
        return source
    gpus = {gpu for node in nodes.nodes for gpu in node.gpus}
    shares = {f"{gpu.cpus:g} cpus" for gpu in gpus if not gpu.device}
    measured = set(read_throughput_table(known)[MEASURED][gpu_type]["gpus"])
    if shares and shares != measured:
        raise InputError(
            "profile",
            f"missing, and the table of {gpu_type} that comes with Shockwave is of slots of "
            f"{', '.join(sorted(measured))}, not of {', '.join(sorted(shares))}",
            "measure one with shockwave profile",
        )
    return replace(source, profile=known)
