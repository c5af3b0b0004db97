"""A Slurm partition as the cluster of a run: its nodes, and what jobs on it get."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from containers.leasing.folder import job_folder
from containers.slurm.commands import Commands
from containers.slurm.inventory import SlurmNode, list_nodes, make_inventory, sort_nodes
from solver.inventory import Inventory


@dataclass(frozen=True, slots=True)
class SlurmSite:
    """What a cluster file says of a Slurm.

    Attributes:
        storage: Folder that this machine and all nodes share, at the same path; it has a folder
            for each run and job.
        partition: Partition of the leases; empty for all nodes with GPUs.
        options: Other options of `sbatch`, such as `--account=research`.
        commands: Folder of Slurm's commands; None for those of the `PATH`.
        trainer: Command of jobs without one of their own; their folder is its last argument.
        datasets: Folder of data sets on each node.
        cpus_per_gpu: Processors for each GPU; 0 leaves them to Slurm.
        memory_per_gpu: Bytes of memory for each GPU; 0 leaves it to Slurm.
        grace_seconds: Time from SIGTERM to SIGKILL, for writing a checkpoint.
        start_seconds: Time in which Slurm has to start a lease.
        hung_rounds: Consecutive rounds without a completed step or epoch after which a job counts
            as hung.
        folder_bytes: Space of a job's folder in the storage.
        rendezvous_port: Port on which the first program of a gang listens.
    """

    storage: Path
    partition: str = ""
    options: tuple[str, ...] = ()
    commands: Path | None = None
    trainer: tuple[str, ...] = ()
    datasets: Path | None = None
    cpus_per_gpu: int = 0
    memory_per_gpu: int = 0
    grace_seconds: float = 30.0
    start_seconds: float = 60.0
    hung_rounds: int = 3
    folder_bytes: int = 64 * 2**30
    rendezvous_port: int = 29500

    def folder(self, run: str, job_id: int) -> Path:
        """Return the folder of a job, kept between its leases.

        Raises:
            InputError: The run's id is not valid.
        """
        return job_folder(self.storage, run, job_id)


@dataclass(frozen=True)
class SlurmCluster:
    """The nodes of a Slurm, as a `Cluster`.

    Its GPUs are names for counts: which of a node's GPUs a job gets is up to Slurm.

    Attributes:
        nodes: Nodes with GPUs, in the order of `sort_nodes`.
    """

    site: SlurmSite
    nodes: tuple[SlurmNode, ...]

    @property
    def grace_seconds(self) -> float:
        """See `Cluster.grace_seconds`."""
        return self.site.grace_seconds

    @property
    def hung_rounds(self) -> int:
        """See `Cluster.hung_rounds`."""
        return self.site.hung_rounds

    @property
    def folder_bytes(self) -> int:
        """See `Cluster.folder_bytes`."""
        return self.site.folder_bytes

    @property
    def storage(self) -> Path:
        """The folder that all nodes share."""
        return self.site.storage

    @property
    def names(self) -> tuple[str, ...]:
        """See `Cluster.names`."""
        return tuple(node.name for node in self.nodes)

    @property
    def gpus(self) -> int:
        """Number of GPUs of all nodes."""
        return self.inventory.gpus

    @cached_property
    def inventory(self) -> Inventory:
        """The nodes and GPUs, as leases number them."""
        return make_inventory(self.nodes)

    def by_node(self, gpus: Sequence[int]) -> dict[int, tuple[int, ...]]:
        """See `Cluster.by_node`."""
        return self.inventory.by_node(gpus)

    def folder(self, run: str, job_id: int) -> Path:
        """See `Cluster.folder`."""
        return self.site.folder(run, job_id)

    def hand_over(self, folder: Path) -> None:
        """See `Cluster.hand_over`: jobs run as the scheduler's own user."""


def find_cluster(site: SlurmSite) -> SlurmCluster:
    """Ask Slurm for the nodes of a site.

    Raises:
        InputError: There are none with GPUs, or a node has GPUs of two types.
        Refused: Slurm refuses to tell, as it does of an unknown partition.
        SlurmAway: It does not answer.
    """
    nodes = sort_nodes(list_nodes(Commands(site.commands), site.partition))
    make_inventory(nodes)
    return SlurmCluster(site, nodes)
