"""Load and check policies of other distributions, and check their plans."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import is_dataclass
from itertools import chain
from typing import Any

from predictor.plugins import Plugin
from solver.market import Bid
from solver.plan import Plan, Situation, SolveReport

DECLARED = {
    "name": str,
    "summary": str,
    "source": str,
    "looks_ahead": bool,
    "clairvoyant": bool,
    "work_conserving": bool,
    "several_pools": bool,
    "reads_forecasts": bool,
    "reads_losses": bool,
}
"""Required class attributes of a policy."""


def load_policy(plugin: Plugin) -> type[Any]:
    """Import a policy.

    Raises:
        PluginError: It cannot be imported, or is not a policy.
    """
    found = plugin.load()
    for problem in _unlike(plugin.name, found):
        raise plugin.refused(problem)
    policy: type[Any] = found
    return policy


def _unlike(name: str, found: Any) -> Iterator[str]:
    """Yield the reasons why an object is not a policy of this name, in words."""
    frozen = isinstance(found, type) and is_dataclass(found)
    if not frozen or not vars(found)["__dataclass_params__"].frozen:
        yield f"is not a frozen dataclass but {found!r}"
        return
    for attribute, kind in DECLARED.items():
        if not isinstance(getattr(found, attribute, None), kind):
            yield f"has no {attribute} ({kind.__name__}); a policy inherits shockwave.Policy"
    if found.name != name:
        yield f"calls itself {found.name!r}"
    if not callable(getattr(found, "plan", None)):
        yield "has no method plan"


def make_checked_plan(plugin: Plugin, policy: Any, situation: Situation) -> Plan:
    """Return the plan of a policy of another distribution, checked.

    Raises:
        PluginError: The policy raised an exception, or its plan cannot be carried out.
    """
    plan: Plan = plugin.call("plan", lambda: policy.plan(situation))
    for problem in find_problems(situation, plan):
        raise plugin.refused(f"made a plan that cannot be carried out: {problem}")
    return plan


def find_problems(situation: Situation, plan: object) -> Iterator[str]:
    """Yield the reasons why a plan cannot be executed and recorded, in words."""
    if not isinstance(plan, Plan):
        yield f"it is a {type(plan).__name__}, no Plan"
        return
    gangs = {job.job_id: {allocation.gpus for allocation in job.menu} for job in situation.jobs}
    inventory = situation.inventory
    yield from _misplaced(plan.placement, gangs, inventory.gpus + len(inventory.kept))
    held = {gpu for gpus in plan.placement.values() for gpu in gpus}.intersection(inventory.kept)
    if held:
        yield f"it gives GPU {min(held)} away, which is kept"
    yield from _unreported(plan)


def _misplaced(placement: object, gangs: Mapping[int, set[int]], gpus: int) -> Iterator[str]:
    if not isinstance(placement, Mapping):
        yield f"its placement is a {type(placement).__name__}, no mapping from jobs to GPUs"
        return
    for job_id, held in placement.items():
        if type(job_id) is not int or job_id not in gangs:
            yield f"it places {job_id!r}, which is not a job that it was given"
        elif not isinstance(held, tuple) or any(type(gpu) is not int for gpu in held):
            yield f"job {job_id} is placed on {held!r}, which is not a tuple of integers"
        elif len(held) not in gangs[job_id]:
            asked = " or ".join(map(str, sorted(gangs[job_id])))
            yield f"job {job_id} is placed on {len(held)} GPUs and asked for {asked}"
        elif list(held) != sorted(set(held)) or not 0 <= held[0] <= held[-1] < gpus:
            yield f"job {job_id} is placed on {held}, not ascending or not of the {gpus} GPUs"
        else:
            continue
        return
    used = list(chain.from_iterable(placement.values()))
    if len(set(used)) < len(used):
        yield "two jobs share a GPU"


def _unreported(plan: Plan) -> Iterator[str]:
    """Yield problems that would break records or explanations."""
    report, bids = plan.report, plan.bids
    if not isinstance(report, SolveReport):
        yield f"its report is a {type(report).__name__}, no SolveReport"
        return
    if not all(map(math.isfinite, (report.objective, report.bound, report.gap))):
        yield "objective, bound or gap of its report is not finite"
    if not isinstance(bids, tuple) or not all(isinstance(bid, Bid) for bid in bids):
        yield "its bids are not a tuple of Bid"
    if plan.pairs:
        yield "its pairs share GPUs, which is for policies of this package"
    if not isinstance(plan.memory, str):
        yield f"its memory is a {type(plan.memory).__name__}, no text"
    if not isinstance(plan.order, tuple) or len(plan.worth) not in (0, len(plan.order)):
        yield "its order is not a tuple, or has another length than its worth"
    elif len(plan.first_by) not in (0, len(plan.order)):
        yield "its order has another length than its first_by"
