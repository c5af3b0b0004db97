"""Settings of a service, as given on the command line."""

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from flows.runs.setting import Setting, check_bounds
from flows.runs.settings import (
    DEFAULT_POLICY,
    GPUS,
    GPUS_PER_NODE,
    POLICY,
    SEED,
    ClusterSize,
    RunSettings,
    make_settings,
)
from predictor.errors import InputError

if TYPE_CHECKING:
    from predictor.throughput import Profile
    from solver.inventory import Inventory
    from tasks.record import RunHeader, Settings, Start

DATABASE_URL = "PREFECT_SERVER_DATABASE_CONNECTION_URL"
"""Environment variable with the URL of Prefect's database; if it is Postgres, also the inbox's."""


@dataclass(frozen=True)
class ServiceOptions(RunSettings):
    """Settings of a service."""

    policy: Annotated[str, POLICY] = DEFAULT_POLICY
    gpus: Annotated[int, GPUS] = 8
    gpus_per_node: Annotated[int, GPUS_PER_NODE] = 1
    seed: Annotated[int, SEED] = 0
    speed: Annotated[
        float,
        Setting(
            "Speed",
            "Speed of a virtual cluster's clock, relative to real time.",
            above=0,
            most=100_000,
        ),
    ] = 1.0
    cluster: Annotated[
        Path | None,
        Setting("Cluster", "Cluster file (TOML) of Docker hosts, instead of a virtual cluster."),
    ] = None
    partition: Annotated[
        str,
        Setting("Partition", "Slurm partition whose users' jobs it starts, instead of a cluster."),
    ] = ""
    profile: Annotated[
        Path | None,
        Setting("Profile", "Throughput table (JSON) of the models that jobs may train."),
    ] = None
    driver: Annotated[
        str,
        Setting("Driver", "Rounds as flow runs (prefect), or as plain calls (plain)."),
    ] = "prefect"

    @classmethod
    def parse(cls, text: str) -> "ServiceOptions":
        """Parse settings from `text`."""
        fields: dict[str, Any] = json.loads(text)
        paths = {name: fields[name] and Path(fields[name]) for name in ("cluster", "profile")}
        return cls(**{**fields, **paths})

    @property
    def text(self) -> str:
        """The settings as text, for another process; they contain no secret."""
        return json.dumps(asdict(self), default=str)

    def check(self) -> None:
        """Check the settings before any process starts.

        Raises:
            InputError: A setting is invalid.
        """
        check_bounds(type(self), self)
        if self.partition and self.cluster is not None:
            raise InputError("partition", "is given beside a cluster file", "give one of them")
        if self.driver not in ("plain", "prefect"):
            raise InputError("driver", f"unknown driver {self.driver!r}", "give prefect or plain")
        self.make_start()

    def make_start(self) -> "Start":
        """Make the start of a new service."""
        from flows.runs.start import make_start
        from tasks.sources import Workload

        workload = Workload("inbox", (), (), self.read_profile())
        return make_start(workload, self.make_settings(), service=True)

    def make_settings(self) -> "Settings":
        """Make the settings that the header of its run records."""
        from tasks.record import RuntimeKind

        if self.partition:
            from flows.runs.pools import Machines

            machines, kind = Machines(self._read_partition().pools), RuntimeKind.SLURM
            return make_settings(self.policy, machines, self, seed=self.seed, runtime=kind)
        if self.cluster is None:
            size, kind = ClusterSize(self.gpus, self.gpus_per_node), RuntimeKind.FAITHFUL
            return make_settings(self.policy, size, self, seed=self.seed, runtime=kind)
        from flows.runs.cluster_file import describe_machines, read_cluster

        machines, kind = describe_machines(read_cluster(self.cluster))
        return make_settings(self.policy, machines, self, seed=self.seed, runtime=kind)

    def _read_partition(self) -> "Inventory":
        from containers.slurm.commands import Commands
        from containers.slurm.inventory import make_inventory
        from flows.runs.queue_run import read_partition

        return make_inventory(read_partition(self.partition, Commands()))

    def read_profile(self) -> "Profile":
        """Read the throughputs of the models that jobs may train.

        Raises:
            InputError: The table is invalid, or there is no table for the cluster's GPUs.
        """
        from predictor.job import JobKind
        from predictor.throughput import Profile
        from warehouse.workloads.families import generated_profile
        from warehouse.workloads.tables import read_throughputs

        if self.partition:
            kinds = self._read_partition().types
            return Profile({(JobKind.OPAQUE.value, 1, kind, 1): 1.0 for kind in kinds})
        if self.cluster is None:
            return read_throughputs(self.profile) if self.profile else generated_profile()
        from flows.runs.cluster_file import read_cluster
        from flows.runs.default_profile import PROFILES

        kinds = read_cluster(self.cluster).inventory.types
        table = self.profile or PROFILES / f"{'+'.join(kinds)}.json"
        if not table.exists():
            raise InputError(
                "profile",
                f"is missing: no table is shipped for {' and '.join(kinds)}",
                "measure one: shockwave cluster profile",
            )
        return read_throughputs(table, kinds)

    def check_same(self, run: str, header: "RunHeader") -> None:
        """Refuse settings that differ from those of the service's run; defaults are not compared.

        Raises:
            InputError: A setting differs; the error names it.
        """
        mine = self.make_start().header.settings
        mine_alone = type(self)(cluster=self.cluster, partition=self.partition)
        default = mine_alone.make_start().header.settings
        for field in fields(mine):
            asked, began = getattr(mine, field.name), getattr(header.settings, field.name)
            if asked not in (began, getattr(default, field.name)):
                name = "gpus" if field.name == "pools" else field.name
                raise InputError(
                    name,
                    f"differs from the setting of this warehouse's service {run!r}",
                    "leave it out, or give another warehouse",
                )
