"""Comparisons: campaigns of one workload on one cluster under several policies."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from flows.campaigns.plan import CampaignPlan
from flows.runs.settings import ClusterSize, SimulationSettings, make_settings
from flows.runs.simulation import prepare
from flows.runs.start import (
    check_history,
    make_policy_of,
    make_start,
    open_workload,
    read_past_jobs,
)
from flows.runs.workload_source import Source
from predictor.errors import InputError
from solver.policies import parameters as parameters_in
from solver.policies import policy_class, policy_names
from tasks.record import Parameter, Settings
from tasks.sources import Workload
from warehouse.store.durable import check_writable

if TYPE_CHECKING:
    from flows.runs.simulation import Watch


def select_parameters(policy: str, asked: Iterable[Parameter]) -> tuple[Parameter, ...]:
    """Return the given parameters that a policy has; none for an unknown policy."""
    known = parameters_in(policy_class(policy)) if policy in policy_names() else {}
    return tuple(parameter for parameter in asked if parameter.name in known)


def check_policies(
    policies: Sequence[str], settings: Settings, parameters: Sequence[Parameter]
) -> None:
    """Refuse policies that cannot be compared, before a file is read.

    Raises:
        InputError: A policy is unknown or named twice, or no policy has a parameter.
    """
    twice = [name for name, times in Counter(policies).items() if times > 1]
    if twice:
        raise InputError("policies", f"{twice[0]!r} is there twice", "name each policy once")
    for name in policies:
        try:
            make_policy_of(replace(settings, policy=name))
        except InputError as error:
            raise InputError("policies", error.problem, error.remedy) from None
    for parameter in parameters:
        if not any(select_parameters(policy, [parameter]) for policy in policies):
            raise InputError(
                f"parameters.{parameter.name}",
                f"is a parameter of none of {', '.join(policies)}",
                "see shockwave policy list",
            )


def plan_comparison(
    source: Source,
    size: ClusterSize,
    settings: SimulationSettings,
    policies: Sequence[str],
    warehouse: Path,
    parameters: Sequence[Parameter] = (),
    history: tuple[str, ...] = (),
) -> tuple[CampaignPlan, Workload]:
    """Plan a comparison, and check every run before any starts; see `make_comparison`.

    Returns:
        The plan, and the workload on its cluster, of which the runs open copies.

    Raises:
        ShockwaveError: A file, a policy or a setting is invalid, or no policy has a parameter.
    """
    check_history(history, settings.forecasts)
    first = make_settings(policies[0], size, settings)
    check_policies(policies, first, parameters)
    workload, past = open_workload(source, first), read_past_jobs(warehouse, history)
    for name in policies:
        taken = select_parameters(name, parameters)
        asked = make_settings(name, size, settings, parameters=taken, seed=source.seed)
        start = make_start(workload, asked, past)
        prepare(start)
    check_writable(warehouse)
    title = f"{','.join(policies)} ({settings.fidelity})"
    plan = make_comparison(title, source, size, settings, policies, parameters, history)
    return plan, start.workload


def run_comparison(
    plan: CampaignPlan, warehouse: Path, watch: "Watch | None" = None, in_prefect: bool = False
) -> list[str]:
    """Run one policy of a comparison after the other; return the runs' ids in that order.

    With `in_prefect` it is a flow run, with a task run for each policy.

    Raises:
        CellsFailed: A run failed.
        Interrupted: The user stopped it.
    """
    from flows.campaigns import Runner
    from flows.campaigns.execution import run_campaign, watch_campaigns
    from warehouse.store.campaigns import read_cells

    with watch_campaigns(rounds=watch):
        if in_prefect:
            from flows.campaigns.campaign import run_campaign_in_prefect

            done = run_campaign_in_prefect(plan, Runner.THREADS, 1, None, warehouse, fresh=True)
        else:
            done = run_campaign(plan, Runner.THREADS, 1, warehouse, fresh=True)
    return [cell.run for cell in read_cells(warehouse, done)]


def make_comparison(
    title: str,
    source: Source,
    size: ClusterSize,
    settings: SimulationSettings,
    policies: Sequence[str],
    parameters: Sequence[Parameter] = (),
    history: tuple[str, ...] = (),
) -> CampaignPlan:
    """Make the campaign that runs one workload under several policies.

    Each parameter applies to the policies that have it. The history lists earlier runs whose
    finished jobs are learned from.
    """
    plans = []
    for policy in policies:
        values = {each.name: each.value for each in select_parameters(policy, parameters)}
        plans.append({"policy": policy, "name": policy, "parameters": values})
    jobs = asdict(source)
    seed = jobs.pop("seed")
    return CampaignPlan.model_validate(
        {
            "name": "compare",
            "description": title[:500],
            "policies": plans,
            "workloads": [{"name": "workload", **jobs}],
            "clusters": [{"name": "cluster", **asdict(size)}],
            "seeds": [seed],
            "settings": asdict(settings),
            "history": history,
        }
    )
