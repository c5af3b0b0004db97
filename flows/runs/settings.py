"""Settings of a run, shared by command line, campaign files and forms."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated

from flows.runs.setting import Setting
from predictor.basis import Basis
from predictor.errors import InputError, meant
from solver.fidelity import Fidelity

if TYPE_CHECKING:
    from flows.runs.pools import Machines
    from solver.inventory import Pool
    from tasks.record import Parameter, Settings

MOST_GPUS = 1_000_000
"""Mirrors `solver.inventory.MOST_GPUS`, without its imports."""

MOST_SEED = 2**63 - 1
"""Largest value of a BIGINT column of the warehouse."""


def policy_names() -> Sequence[str]:
    """Return the names of the policies."""
    from solver.policies import policy_names as names

    return names()


def backend_names() -> Sequence[str]:
    """Return the names of the solver back ends."""
    from solver.backends.choice import BACKENDS

    return list(BACKENDS)


def runtime_names() -> list[str]:
    """Return the names of simulating runtimes: ours first, then plugins."""
    from predictor.plugins import Kind, plugins

    return [*VIRTUAL_RUNTIMES, *(name for name in plugins(Kind.RUNTIMES) if name not in RUNTIMES)]


def find_runtime(name: str) -> str:
    """Return the name of a simulating runtime, if it exists.

    Raises:
        InputError: It is unknown.
    """
    if name not in runtime_names():
        raise InputError("runtime", f"unknown runtime {name!r}", meant(name, runtime_names()))
    return name


DEFAULT_POLICY = "shockwave"
DEFAULT_BACKEND = "auto"
DEFAULT_RUNTIME = "virtual"

VIRTUAL_RUNTIMES = ("virtual", "faithful")
"""Our runtimes on a virtual clock."""

RUNTIMES = (*VIRTUAL_RUNTIMES, "docker", "slurm")
"""Mirrors `tasks.record.RuntimeKind`, without its imports."""

POLICY = Setting("Policy", "Scheduling policy; see shockwave policy list.", choices=policy_names)
RUNTIME = Setting(
    "Runtime",
    "Runtime: virtual (the published simulator), faithful (like containers), or a plugin.",
    choices=runtime_names,
)
BACKEND = Setting("Back end", "Solver: auto, lagrangian, gurobi or highs.", choices=backend_names)
GPUS = Setting("GPUs", "GPUs in the cluster.", least=1, most=MOST_GPUS)
GPUS_PER_NODE = Setting(
    "GPUs per node", "GPUs per node; must divide the number of GPUs.", least=1, most=MOST_GPUS
)
POOLS = Setting("Pools", "GPUs of several types, instead of a number: TYPE:NODESxGPUS[@PRICE],…")
CELLS = Setting("Cells", "GPUs reserved for tenants: TENANT:TYPE:LEVEL:COUNT,…")
LEVELS = Setting(
    "Levels", "Levels of cells above GPUs, lowest first: TYPE:NAME:PARTS,…; by default nodes."
)
SEED = Setting("Seed", "Seed of all random numbers.", least=0, most=MOST_SEED)


@dataclass(frozen=True)
class ClusterSize:
    """A virtual cluster: equal nodes, or pools of several GPU types."""

    gpus: Annotated[int | None, GPUS] = None
    gpus_per_node: Annotated[int, GPUS_PER_NODE] = 1
    pools: Annotated[str, POOLS] = ""
    cells: Annotated[str, CELLS] = ""
    levels: Annotated[str, LEVELS] = ""


def make_machines(size: ClusterSize) -> "Machines":
    """Make the machines of a cluster.

    Raises:
        InputError: It has no size or two sizes, or a value is invalid.
    """
    from flows.runs.pools import Machines, parse_cells, parse_levels

    return Machines(pools_of(size), parse_levels(size.levels), parse_cells(size.cells))


def pools_of(size: ClusterSize) -> "tuple[Pool, ...]":
    """Make the pools of a cluster.

    Raises:
        InputError: It has no size, two sizes, or an invalid size.
    """
    from flows.runs.pools import parse_pools
    from tasks.record import make_pool

    if not size.pools:
        if size.gpus is None:
            raise InputError("gpus", "missing", "give the number of GPUs, or pools")
        return make_pool(size.gpus, size.gpus_per_node)
    if size.gpus is not None or size.gpus_per_node != 1:
        raise InputError("pools", "already give the number of GPUs", "give one of the two")
    return parse_pools(size.pools)


@dataclass(frozen=True)
class RunSettings:
    """Settings of every run, virtual or in containers.

    Round, restart and window have the published system's defaults (NSDI '23).
    """

    backend: Annotated[str, BACKEND] = DEFAULT_BACKEND
    round_seconds: Annotated[
        float, Setting("Round (s)", "Length of a round, in seconds.", least=1, most=1_000_000)
    ] = 120.0
    restart_seconds: Annotated[
        float,
        Setting(
            "Restart (s)",
            "Time that a restart costs a job, in seconds; less than a round.",
            least=0,
            most=1_000_000,
        ),
    ] = 20.0
    window: Annotated[
        int,  # a bid is a table over the window, and each round records all bids
        Setting("Window (rounds)", "Rounds to plan ahead.", least=1, most=1_000),
    ] = 20


@dataclass(frozen=True)
class SimulationSettings(RunSettings):
    """Settings of a run on a virtual cluster."""

    fidelity: Annotated[
        Fidelity,
        Setting(
            "Fidelity",
            "Rules: alike for all policies (fair), or as published (reference).",
        ),
    ] = Fidelity.FAIR
    forecasts: Annotated[
        Basis,
        Setting(
            "Forecasts",
            "Forecasts: learned (posterior), at today's batch size (reactive), or true (oracle).",
        ),
    ] = Basis.POSTERIOR
    runtime: Annotated[str, RUNTIME] = DEFAULT_RUNTIME


def make_settings(
    policy: str,
    size: "ClusterSize | Machines",
    settings: RunSettings,
    *,
    parameters: Iterable["Parameter"] = (),
    seed: int = 0,
    runtime: str = DEFAULT_RUNTIME,
) -> "Settings":
    """Make the settings of a run, as recorded in its header.

    Args:
        policy: Name of the policy.
        size: The cluster.
        settings: Settings of the run.
        parameters: Parameters of the policy that differ from its defaults.
        seed: Seed of all random draws.
        runtime: Runtime of a run that is not simulated.

    Raises:
        InputError: The cluster has no size, two sizes, or an invalid size; or the simulating
            runtime is unknown.
    """
    from tasks.record import Settings

    group = SimulationSettings if isinstance(settings, SimulationSettings) else RunSettings
    values = {field.name: getattr(settings, field.name) for field in fields(group)}
    values["runtime"] = find_runtime(values["runtime"]) if "runtime" in values else runtime
    return Settings(
        policy=policy,
        **(make_machines(size) if isinstance(size, ClusterSize) else size)._asdict(),
        parameters=tuple(parameters),
        seed=seed,
        **values,
    )
