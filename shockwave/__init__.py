"""Shockwave as a library: run, compare, query, and write your own policies.

    import shockwave

    run = shockwave.simulate(shockwave.Source(jobs=60, seed=1), gpus=16)
    shockwave.Warehouse().runs(run)

Functions mirror the commands and use the same warehouse. Each name is imported on first use, so
that `import shockwave` is fast. `docs/library.md` lists all names and what may change when.
"""

# ruff: noqa: I001, F401 -- `as` names are exported to type checkers, several in one import

from importlib import import_module
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # for type checkers; at run time `__getattr__` imports
    from containers.runtime import (
        ContainerEvent as ContainerEvent,
        EventKind as EventKind,
        Lease as Lease,
        Observation as Observation,
        ResumePoint as ResumePoint,
        Runtime as Runtime,
        RuntimeFactory as RuntimeFactory,
        Terms as Terms,
    )
    from containers.virtual.faithful import FaithfulFactory as FaithfulFactory
    from containers.virtual.truth import GroundTruth as GroundTruth
    from flows.api.client import Client as Client
    from flows.explain.answer import Answer as Answer
    from flows.explain.whatif import Change as Change, Outcome as Outcome
    from flows.runs.settings import SimulationSettings as Settings
    from flows.runs.workload_source import Source as Source
    from predictor.allocation import Allocation as Allocation, Demand as Demand
    from predictor.errors import (
        InputError as InputError,
        PluginError as PluginError,
        ShockwaveError as ShockwaveError,
    )
    from predictor.job import (
        EpochReport as EpochReport,
        JobProgress as JobProgress,
        JobSpec as JobSpec,
    )
    from predictor.throughput import Profile as Profile
    from shockwave.queries import (
        Warehouse as Warehouse,
        audit as audit,
        figures as figures,
        replay as replay,
        report as report,
        whatif as whatif,
        why as why,
    )
    from shockwave.running import Campaign as Campaign, compare as compare, simulate as simulate
    from solver.plan import (
        ActiveJob as ActiveJob,
        Plan as Plan,
        Policy as Policy,
        Situation as Situation,
        SolveReport as SolveReport,
    )
    from solver.policies.listed import run_list as run_list
    from tasks.sources import Workload as Workload
    from warehouse.store.audit import Audit as Audit
    from warehouse.workloads.logs.log import TableJob as TableJob

_HOMES = {
    "containers.runtime": "ContainerEvent EventKind Lease Observation ResumePoint Runtime "
    "RuntimeFactory Terms",
    "containers.virtual.faithful": "FaithfulFactory",
    "containers.virtual.truth": "GroundTruth",
    "flows.api.client": "Client",
    "flows.explain.answer": "Answer",
    "flows.explain.whatif": "Change Outcome",
    "flows.runs.settings": "Settings",
    "flows.runs.workload_source": "Source",
    "predictor.allocation": "Allocation Demand",
    "predictor.errors": "InputError PluginError ShockwaveError",
    "predictor.job": "EpochReport JobProgress JobSpec",
    "predictor.throughput": "Profile",
    "shockwave.queries": "Warehouse audit figures replay report whatif why",
    "shockwave.running": "Campaign compare simulate",
    "solver.plan": "ActiveJob Plan Policy Situation SolveReport",
    "solver.policies.listed": "run_list",
    "tasks.sources": "Workload",
    "warehouse.store.audit": "Audit",
    "warehouse.workloads.logs.log": "TableJob",
}
"""Public names by the module that defines them."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names.split()}
_ORIGINALS = {"Settings": "SimulationSettings"}
"""Public names that differ from the name in their module."""

__version__: str
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "__version__":
        return version("shockwave")
    if name not in _MODULES:
        raise AttributeError(f"module 'shockwave' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), _ORIGINALS.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
