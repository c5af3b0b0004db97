"""What a run starts from: its jobs, its settings and what earlier runs taught, all checked."""

from collections.abc import Iterable
from pathlib import Path

from flows.runs.setting import check_bounds
from flows.runs.settings import SimulationSettings
from predictor.errors import InputError
from solver.cluster import Cluster
from solver.plan import Policy
from solver.policies import make_policy
from tasks.record import VERSION, PastJob, RunHeader, Settings, Throughput
from tasks.state import RunState, advance
from warehouse.store.reader import Reader
from tasks.sources import Workload


def make_header(
    workload: Workload, settings: Settings, history: tuple[PastJob, ...] = ()
) -> RunHeader:
    """What a run of a workload starts from.

    Args:
        workload: Its jobs.
        settings: What is asked.
        history: Finished jobs of earlier runs; those that the profile does not know are
            left out.

    Raises:
        InputError: A setting is wrong, or a job does not fit the cluster.
    """
    policy_of(settings)
    Cluster(settings.gpus, settings.gpus_per_node)
    workload.check_fits(settings.gpus)
    check_bounds(SimulationSettings, settings)
    if settings.restart_seconds >= settings.round_seconds:
        raise InputError(
            "restart_seconds",
            f"{settings.restart_seconds:g} leaves nothing of a round",
            f"give less than the round's {settings.round_seconds:g}",
        )
    models = {spec.model for spec in workload.specs}
    return RunHeader(
        version=VERSION,
        settings=settings,
        source=workload.source,
        specs=workload.specs,
        truths=workload.truths,
        profile=tuple(
            Throughput(*key, rate)
            for key, rate in sorted(workload.profile.steps_per_second.items())
            if key[0] in models
        ),
        history=tuple(
            job
            for job in history
            if job.spec.model in models
            and all(
                workload.profile.can_run(job.spec.model, size, job.spec.scale_factor)
                for size in {job.spec.batch_size, *(regime.batch_size for regime in job.observed)}
            )
        ),
    )


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
    """The finished jobs of runs, in the order of their ends.

    Raises:
        ShockwaveError: There is no such run, or its records are damaged.
    """
    reader, jobs, names = Reader(warehouse), [], list(runs)
    if len(set(names)) < len(names):
        raise InputError("history", "a run is there twice", "give each once")
    for name in names:
        header = reader.header(name)
        state = RunState.initial(header)
        for record, _ in reader.records(name):
            state = advance(header, state, record)
        jobs += [PastJob(belief.spec, belief.observed, belief.paces) for belief in state.ended]
    return tuple(jobs)
