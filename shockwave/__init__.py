"""Shockwave as a library: run, compare, ask, and write your own policies.

    import shockwave

    run = shockwave.simulate(shockwave.Source(jobs=60, seed=1), gpus=16)
    shockwave.Warehouse().runs(run)

Everything here does what the command of the same name does, through the same functions, and keeps
its records in the same warehouse. A name is imported when it is first used, so that importing
`shockwave` takes no time. `docs/library.md` has the whole of it, and what may change when.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from containers.runtime import (
        ContainerEvent,
        EventKind,
        Lease,
        Observation,
        ResumePoint,
        Runtime,
        RuntimeFactory,
        Terms,
    )
    from containers.virtual.faithful import FaithfulFactory
    from containers.virtual.truth import GroundTruth
    from flows.api.client import Client
    from flows.explain.answer import Answer
    from flows.explain.whatif import Change, Outcome
    from flows.runs.settings import SimulationSettings as Settings
    from flows.runs.workload_source import Source
    from predictor.allocation import Allocation, Demand
    from predictor.errors import InputError, PluginError, ShockwaveError
    from predictor.job import EpochReport, JobProgress, JobSpec
    from predictor.throughput import Profile
    from shockwave.queries import Warehouse, audit, figures, replay, report, whatif, why
    from shockwave.running import Campaign, compare, simulate
    from solver.plan import ActiveJob, Plan, Policy, Situation, SolveReport
    from solver.policies.listed import run_list
    from tasks.sources import Workload
    from warehouse.store.audit import Audit
    from warehouse.workloads.job_table import TableJob

_HOMES = {
    "containers.runtime": (
        "ContainerEvent",
        "EventKind",
        "Lease",
        "Observation",
        "RuntimeFactory",
        "Runtime",
        "ResumePoint",
        "Terms",
    ),
    "containers.virtual.faithful": ("FaithfulFactory",),
    "containers.virtual.truth": ("GroundTruth",),
    "flows.explain.answer": ("Answer",),
    "flows.explain.whatif": ("Change", "Outcome"),
    "flows.runs.settings": ("Settings",),
    "flows.runs.workload_source": ("Source",),
    "flows.api.client": ("Client",),
    "predictor.allocation": ("Allocation", "Demand"),
    "predictor.errors": ("InputError", "PluginError", "ShockwaveError"),
    "predictor.job": ("EpochReport", "JobProgress", "JobSpec"),
    "predictor.throughput": ("Profile",),
    "shockwave.queries": ("Warehouse", "audit", "figures", "replay", "report", "whatif", "why"),
    "shockwave.running": ("Campaign", "compare", "simulate"),
    "solver.plan": ("ActiveJob", "Plan", "Policy", "Situation", "SolveReport"),
    "solver.policies.listed": ("run_list",),
    "tasks.sources": ("Workload",),
    "warehouse.store.audit": ("Audit",),
    "warehouse.workloads.job_table": ("TableJob",),
}
"""Public names, by the module that defines them."""

_INSIDE = {"Settings": "SimulationSettings"}
"""Name inside the module, where it is another."""

_MODULES = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "ActiveJob",
    "Allocation",
    "Answer",
    "Audit",
    "Campaign",
    "Change",
    "Client",
    "ContainerEvent",
    "Demand",
    "EpochReport",
    "EventKind",
    "FaithfulFactory",
    "GroundTruth",
    "InputError",
    "JobProgress",
    "JobSpec",
    "Lease",
    "Observation",
    "Outcome",
    "Plan",
    "PluginError",
    "Policy",
    "Profile",
    "ResumePoint",
    "Runtime",
    "RuntimeFactory",
    "Settings",
    "ShockwaveError",
    "Situation",
    "SolveReport",
    "Source",
    "TableJob",
    "Terms",
    "Warehouse",
    "Workload",
    "audit",
    "compare",
    "figures",
    "replay",
    "report",
    "run_list",
    "simulate",
    "whatif",
    "why",
]


def __getattr__(name: str) -> Any:
    """A public name, imported when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'shockwave' has no attribute {name!r}")
    value = getattr(import_module(_MODULES[name]), _INSIDE.get(name, name))
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """The public names."""
    return __all__
