"""The start of a run: its workload, settings and history, all checked."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from flows.runs.setting import check_bounds
from flows.runs.settings import SimulationSettings
from predictor.errors import InputError
from predictor.throughput import UNTYPED, Profile
from solver.inventory import Pool
from solver.plan import Policy
from solver.policies import make_policy
from tasks.layouts import VERSION
from tasks.record import (
    Measurement,
    PastJob,
    RunHeader,
    Settings,
    Start,
    record_hash,
    workload_hash,
)
from tasks.sources import Workload
from tasks.state import RunState, advance
from warehouse.store.reader import Reader


def make_start(workload: Workload, asked: Settings, history: tuple[PastJob, ...] = ()) -> Start:
    """The start of a run of a workload.

    Args:
        workload: The workload.
        asked: The settings; a pool without a GPU type takes the type of the workload's profile.
        history: Finished jobs of earlier runs; jobs without an entry in the profile are left
            out.

    Raises:
        InputError: A setting is invalid, or a job does not fit the cluster.
    """
    policy_of(asked)
    profile = workload.profile
    settings = replace(asked, pools=tuple(_typed(pool, profile) for pool in asked.pools))
    workload.check_fits(settings.inventory)
    check_bounds(SimulationSettings, settings)
    if settings.restart_seconds >= settings.round_seconds:
        raise InputError(
            "restart_seconds",
            f"{settings.restart_seconds:g} leaves nothing of a round",
            f"give less than the round's {settings.round_seconds:g}",
        )
    models = {spec.model for spec in workload.specs}
    header = RunHeader(
        version=VERSION,
        settings=settings,
        source=workload.source,
        workload=workload_hash(workload),
        profile=tuple(
            Measurement(*key, rate)
            for key, rate in sorted(profile.rates.items())
            if key[0] in models
        ),
        history=tuple(
            job
            for job in history
            if job.spec.model in models
            and all(
                profile.can_run(job.spec, size, profile.reference(job.spec))
                for size in {job.spec.batch_size, *(regime.batch_size for regime in job.observed)}
            )
        ),
    )
    played = replace(workload, profile=header.throughputs)
    return Start(header, played, record_hash(header))


def _typed(pool: Pool, profile: Profile) -> Pool:
    """A pool with its GPU type, by default the only type of the profile."""
    if pool.gpu_type:
        return pool
    types = profile.gpu_types or (UNTYPED,)
    if len(types) > 1:
        raise InputError(
            "gpu_type",
            f"is missing, and the profile has {', '.join(types)}",
            "give one of these",
        )
    return replace(pool, gpu_type=types[0])


def policy_of(settings: Settings) -> Policy:
    """The policy that settings ask for.

    Raises:
        InputError: There is no such policy, back end or parameter.
    """
    return make_policy(
        settings.policy,
        settings.backend,
        settings.fidelity,
        {parameter.name: parameter.value for parameter in settings.parameters},
    )


def past_jobs(warehouse: Path, runs: Iterable[str]) -> tuple[PastJob, ...]:
    """The finished jobs of runs, by run, in the order in which they ended.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader, jobs, names = Reader(warehouse), [], list(runs)
    if len(set(names)) < len(names):
        raise InputError("history", "a run is listed twice", "list each run once")
    for name in names:
        start = reader.start(name)
        state = RunState.initial(start)
        for record, digest in reader.records(name):
            state = advance(start.header, state, record, digest)
        jobs += [PastJob(belief.spec, belief.observed, belief.paces) for belief in state.ended]
    return tuple(jobs)
