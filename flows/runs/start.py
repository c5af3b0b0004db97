"""The start of a run: its workload, settings and history, all checked."""

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from flows.runs.setting import check_bounds
from flows.runs.settings import ClusterSize, SimulationSettings, make_settings
from flows.runs.sharing import shares_gpus
from flows.runs.workload_source import Source
from predictor.allocation import Allocation
from predictor.basis import Basis
from predictor.errors import InputError, WarehouseError
from predictor.job import Mode
from predictor.throughput import UNTYPED, Profile
from solver.cells.cells import Cells
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Pool
from solver.plan import Policy
from solver.policies import (
    COSTED,
    check_switches,
    for_several_pools,
    make_policy,
)
from solver.policies.mst import check_priced
from tasks.layout import VERSION
from tasks.measured import Measurement, PairMeasurement, SpreadMeasurement
from tasks.record import (
    Parameter,
    PastJob,
    RunHeader,
    Settings,
    Start,
    get_values,
    hash_record,
)
from tasks.sources import Workload
from tasks.state import RunState, advance
from warehouse.store.reader import Reader
from warehouse.workloads.applications import find_truth

Typed = TypeVar("Typed", Pool, TypeLevel, TenantCells)

GENERATED = ", as all generated jobs; to draw jobs of others, give throughputs (docs/traces.md)"
"""Remedy for GPU types other than that of generated jobs."""


def make_start(
    workload: Workload,
    asked: Settings,
    history: tuple[PastJob, ...] = (),
    *,
    service: bool = False,
) -> Start:
    """Make the start of a run of a workload; see `make_header`."""
    settings, workload = fit_to_cluster(workload, asked)
    workload = workload.on(settings.inventory)
    header = make_header(workload, settings, history, service=service)
    return Start(header, replace(workload, profile=header.throughputs), hash_record(header))


def fit_to_cluster(workload: Workload, asked: Settings) -> tuple[Settings, Workload]:
    """Adapt settings and workload to the cluster's GPU types; refuse jobs that can never fit it.

    If jobs hold shares of GPUs, each GPU becomes a node of slots. Jobs of applications that choose
    their batch sizes are tuned to no more GPUs than there are of a type.
    """
    settings = _typed(_slotted(asked, workload.slots), workload.profile)
    workload = replace(workload, profile=_placed(workload.profile, settings.pools))
    workload = _tuned(workload, max(settings.inventory.capacities.values()))
    workload.check_fits(settings.inventory)
    return settings, workload


def _tuned(workload: Workload, most: int) -> Workload:
    specs, truths, reduced = [*workload.specs], [*workload.truths], 0
    for place, spec in enumerate(specs):
        demand = spec.demand
        if spec.mode is Mode.GOODPUT and demand.least <= most < demand.tuned:
            specs[place] = replace(spec, demand=replace(demand, tuned=most))
            reduced += 1
            try:
                truths[place] = find_truth(specs[place], workload.profile)
            except InputError as error:
                at = f"{workload.places.get(spec.job_id, workload.source)}, job {spec.job_id}"
                problem = f"is reduced to {most} of {demand.tuned} GPUs, and {error.problem}"
                raise InputError(
                    at, problem, f"give a larger cluster or {workload.smaller}"
                ) from None
    return replace(workload, specs=tuple(specs), truths=tuple(truths), reduced=reduced)


def _slotted(settings: Settings, slots: int) -> Settings:
    """Divide the GPUs of a cluster into slots, which cost their share of the price."""
    if slots == 1:
        return settings
    pools = (
        replace(
            pool,
            gpus=pool.gpus * slots,
            gpus_per_node=pool.gpus_per_node * slots,
            price=pool.price / slots,
        )
        for pool in settings.pools
    )
    return replace(settings, pools=tuple(pools))


def make_simulation_start(
    source: Source,
    size: ClusterSize,
    policy: str,
    settings: SimulationSettings,
    warehouse: Path,
    *,
    parameters: Iterable[Parameter] = (),
    history: Sequence[str] = (),
) -> Start:
    """Make the start of a simulation for the command line or a program.

    The warehouse has the runs of the history, whose finished jobs are learned from.

    Raises:
        ShockwaveError: A file or a setting is invalid, or a run of the history does not exist.
    """
    asked = make_settings(policy, size, settings, parameters=parameters, seed=source.seed)
    make_policy_of(asked)  # a misspelt policy is told before a file is read
    check_history(history, settings.forecasts)
    return make_start(open_workload(source, asked), asked, read_past_jobs(warehouse, history))


def open_workload(source: Source, asked: Settings) -> Workload:
    """Open the workload of a source, for the cluster of a run.

    Raises:
        InputError: A file or a setting is invalid, or the profile lacks a GPU type.
    """
    return source.open(asked.gpus, tuple(filter(None, asked.inventory.types)))


def check_history(history: Sequence[str], forecasts: Basis) -> None:
    """Refuse a history for oracle forecasts.

    Raises:
        InputError: A history is given, and forecasts are an oracle's.
    """
    if history and forecasts is Basis.ORACLE:
        raise InputError("history", "has no effect on oracle forecasts", "leave it out")


def make_header(
    workload: Workload,
    asked: Settings,
    history: tuple[PastJob, ...] = (),
    *,
    service: bool = False,
    ended: Collection[int] = (),
) -> RunHeader:
    """Make the header of a run of a workload.

    Args:
        workload: The workload.
        asked: The settings; a pool without a GPU type gets the type of the workload's profile.
        history: Finished jobs of earlier runs; jobs without an entry in the profile are left out.
        service: Whether the run is a service's. Jobs of any model in the profile may then arrive,
            and the rounds that admit them record them.
        ended: Ids of jobs that ended before a fork begins; they need not fit its cluster.

    Raises:
        InputError: A setting is invalid, or a job does not fit the cluster.
    """
    settings = _typed(asked, workload.profile)
    profile = _placed(workload.profile, settings.pools)
    several = make_policy_of(settings).several_pools
    check_switches(settings.policy, get_values(settings.parameters))
    if len(settings.pools) > 1 and not several:
        raise InputError(
            "policy",
            f"{settings.policy} schedules one pool of GPUs",
            f"give one pool, or one of {', '.join(for_several_pools())}",
        )
    if settings.layout is not None:
        Cells(settings.layout)  # refuses promises that cannot be kept together
    workload.check_fits(settings.inventory, ended)
    check_bounds(SimulationSettings, settings)
    if settings.restart_seconds >= settings.round_seconds:
        raise InputError(
            "restart_seconds",
            f"{settings.restart_seconds:g} is not shorter than a round",
            f"give less than the round's {settings.round_seconds:g}",
        )
    sizes = any(spec.demand.least < spec.demand.most for spec in workload.specs)
    if sizes and make_policy_of(settings).elastic and settings.backend != "auto":
        raise InputError("backend", "has no effect on elastic jobs", "leave it auto")
    check_prices(settings, settings.pools)
    packs = shares_gpus(settings, profile, service)
    restart = _restarts(settings, profile)
    models = {spec.model for spec in workload.specs}
    if service:
        models = {model for model, *_ in profile.rates}
        workload = replace(workload, specs=(), truths=())
    pairs = packs or bool(settings.forked)
    return RunHeader(
        version=VERSION,
        settings=settings,
        source=workload.source,
        workload=workload.digest,
        profile=_rows(profile, models, restart),
        history=tuple(
            job
            for job in history
            if job.spec.model in models
            and all(
                profile.can_run(job.spec, size, profile.reference(job.spec))
                for size in {job.spec.batch_size, *(regime.batch_size for regime in job.observed)}
            )
        ),
        service=service,
        pairs=_pair_rows(profile, models) if pairs else (),
        losses=make_policy_of(settings).reads_losses,
        spread=tuple(
            SpreadMeasurement(
                nodes, _rows(table, models), _pair_rows(table, models) if pairs else ()
            )
            for nodes, table in sorted(profile.by_nodes.items())
            if any(model in models for model, *_ in table.rates)
        ),
        applications=tuple(
            app for model, app in sorted(profile.applications.items()) if model in models
        ),
    )


def _rows(
    profile: Profile,
    models: Collection[str],
    restart: Callable[[Allocation], float] = lambda there: 0.0,
) -> tuple[Measurement, ...]:
    return tuple(
        Measurement(*key, rate, restart(Allocation(*key[2:])))
        for key, rate in sorted(profile.rates.items())
        if key[0] in models
    )


def _pair_rows(profile: Profile, models: set[str]) -> tuple[PairMeasurement, ...]:
    return tuple(
        PairMeasurement(*key, rate)
        for key, rate in sorted(profile.pairs.items())
        if rate > 0.0 and {key[0], key[2]} <= models
    )


def _placed(profile: Profile, pools: Iterable[Pool]) -> Profile:
    """Drop rates by number of nodes for GPU types whose nodes have one GPU."""
    kinds = {pool.gpu_type for pool in pools if pool.gpus_per_node > 1}
    return profile.where_placement_matters(kinds)


def _restarts(asked: Settings, profile: Profile) -> Callable[[Allocation], float]:
    """Return the restart cost by allocation on a cluster of several types; 0 if free or unknown.

    The setting is the cost on the type with the shortest measured restart. Other types scale it by
    the measured ratio, and may exceed a round.
    """
    inventory = asked.inventory
    there = [took for (kind, _), took in profile.restarts.items() if kind in inventory.types]
    if not inventory.mixed or not there:
        return lambda allocation: 0.0
    least = min(there)
    return lambda there: asked.restart_seconds * (profile.restart(there, 0.0) / least)


def check_prices(settings: Settings, pools: Iterable[Pool]) -> None:
    """Refuse pools without a price if the policy divides by prices.

    Raises:
        InputError: A pool has no price.
    """
    if get_values(settings.parameters).get(COSTED):
        check_priced(pools)


def _typed(asked: Settings, profile: Profile) -> Settings:
    """Give pools, levels and cells their GPU types; refuse unknown and ambiguous types.

    A pool defaults to the profile's only type, a level or promised cell to the cluster's only type.
    """
    types = profile.gpu_types or (UNTYPED,)
    pools = []
    for pool in asked.pools:
        if not pool.gpu_type and len(types) > 1:
            raise InputError(
                "gpu_type",
                f"is missing, and the profile has {', '.join(types)}",
                "give one of these",
            )
        pools.append(_of_type(pool, types))
        if profile.gpu_types and pools[-1].gpu_type not in types:
            raise InputError(
                "pools",
                f"the profile has no GPUs of type {pools[-1].gpu_type!r}",
                f"it has {', '.join(types)}{GENERATED if types == (UNTYPED,) else ''}",
            )
    kinds = tuple(dict.fromkeys(pool.gpu_type for pool in pools))
    for field, parts in (("levels", asked.levels), ("cells", asked.cells)):
        if len(kinds) > 1 and not all(part.gpu_type for part in parts):
            problem = "a GPU type is missing, but the cluster has several"
            raise InputError(field, problem, f"name one of its types: {', '.join(kinds)}")
    return replace(
        asked,
        pools=tuple(pools),
        levels=tuple(_of_type(level, kinds) for level in asked.levels),
        cells=tuple(_of_type(cells, kinds) for cells in asked.cells),
    )


def _of_type(part: Typed, types: Sequence[str]) -> Typed:
    """Return a part of a cluster with its GPU type, by default the first."""
    return part if part.gpu_type else replace(part, gpu_type=types[0])


@lru_cache
def make_policy_of(settings: Settings) -> Policy:
    """Make the policy of the settings, once for the checks and the run.

    Raises:
        InputError: See `make_policy`.
    """
    return make_policy(
        settings.policy,
        settings.backend,
        settings.fidelity,
        get_values(settings.parameters),
    )


def check_recorded(name: str, settings: Settings) -> None:
    """Refuse to repeat decisions with parameters that this version does not have.

    Raises:
        WarehouseError: Another version, with other policy parameters, recorded the run.
    """
    try:
        make_policy_of(settings)
    except InputError as error:
        if not error.place.startswith("parameters."):
            raise
        raise WarehouseError(
            f"run {name!r}",
            f"{error.place}: {error.problem}",
            "use the version that recorded it",
        ) from None


def read_past_jobs(warehouse: Path, runs: Iterable[str]) -> tuple[PastJob, ...]:
    """Return the finished jobs of runs, by run, in the order of their ends.

    Raises:
        ShockwaveError: A run does not exist, or its records are damaged.
    """
    reader, jobs, names = Reader(warehouse), [], list(runs)
    if len(set(names)) < len(names):
        raise InputError("history", "a run is listed twice", "list each run once")
    for name in names:
        start = reader.start(name)
        state = RunState.initial(start)
        for record, digest in reader.records(name):
            state = advance(start.header, state, record, digest)
        jobs += [
            PastJob(belief.spec, belief.observed, belief.paces)
            for belief in state.learning.finished
        ]
    return tuple(jobs)
