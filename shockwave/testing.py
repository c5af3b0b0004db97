"""Conformance tests for plugins; Shockwave's own policies and runtimes pass them, too.

    from shockwave.testing import check_policy

    def test_it_is_a_policy():
        check_policy("smallest-first")

Policies and runtimes run small generated workloads in memory, always the same ones. A throughput
model makes the throughput table of a trace's jobs.
"""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from containers.runtime import EventKind, Lease, Observation
from flows.runs.settings import find_runtime
from flows.runs.simulation import BEGINNING, make_terms, prepare
from flows.runs.start import make_start
from predictor.errors import InputError
from predictor.plugins import Kind, find_plugin
from solver.fidelity import Fidelity
from solver.policies.plugged import find_problems
from tasks.invariants import Invariants
from tasks.record import Parameter, RoundRecord, Settings, Start, Timings, make_pool
from tasks.round import Prediction, Step, StepResult, call_step, make_situation, run_round, solve
from tasks.run import Run
from tasks.sources import Workload
from warehouse.workloads.generator import generate_workload
from warehouse.workloads.plugged import tabulate
from warehouse.workloads.trace import read_jobs

CLUSTERS = ((8, 1), (8, 4))
"""GPUs, and GPUs per node; small, for short runs. Chosen by hand."""

GAPS_SECONDS = (60.0, 3_000.0)
"""Mean gaps between arrivals, for a crowded cluster and a sometimes empty one. Chosen by hand."""

JOBS = 7
"""Jobs of a workload; every second gang must be consolidated. Chosen by hand."""

MOST_ROUNDS = 1_000
"""Most rounds of a run; these workloads take about 100. An engineering bound."""


def check_policy(name: str, parameters: Mapping[str, float] | None = None) -> None:
    """Check that a policy meets the contract of policies.

    Its plans are feasible and depend only on the policy input. Every job ends. If the policy is
    declared work-conserving, no GPU idles while a waiting job fits. The records pass an audit.

    Args:
        name: Name of the installed policy.
        parameters: Parameters that differ from its defaults, by name.

    Raises:
        AssertionError: A check failed; names the check, the round and the workload.
        ShockwaveError: There is no such policy, or it cannot be imported.
        Exception: The policy itself raised it.
    """
    for (gpus, per_node), gap in product(CLUSTERS, GAPS_SECONDS):
        given = tuple(Parameter(key, value) for key, value in sorted((parameters or {}).items()))
        pools = make_pool(gpus, per_node)
        settings = Settings(name, pools, parameters=given, round_seconds=600.0, window=5)
        start = make_start(_workload(gap), settings)
        where = f"{JOBS} jobs every {gap:g} s on {gpus} GPUs, {per_node} a node"
        _Checked(start, where).run()


def check_throughputs(name: str, trace: str | Path) -> None:
    """Check that a throughput model meets the contract of throughput models.

    Each job of a trace can run at its declared batch size on its fewest GPUs. A rate depends only
    on model, batch size, GPU type and number of GPUs.

    Args:
        name: Name of the installed model.
        trace: A public trace.

    Raises:
        AssertionError: A check failed; names the job.
        ShockwaveError: There is no such model, or it failed.
    """
    plugin = find_plugin(Kind.THROUGHPUTS, name)
    if plugin is None:
        raise InputError(f"throughput model {name!r}", "is not installed", "install its package")
    jobs = read_jobs(Path(trace))
    table = tabulate(plugin, jobs)
    assert tabulate(plugin, jobs).rates == table.rates, "the same request gives other rates"
    for job in jobs:
        runs = table.can_run(job, job.batch_size, table.reference(job))
        assert runs, f"job {job.job_id} ({job.model}) cannot run as declared"


def check_runtime(name: str, round_seconds: float = 600.0) -> None:
    """Check that a runtime meets the contract of runtimes.

    Jobs start, are preempted, resume elsewhere, end, are withdrawn and abandoned. Each epoch is
    reported once. Runs pass an audit. Unless the runtime is live (`RuntimeFactory.live`), a
    repeated run is identical.

    Args:
        name: Name of the installed runtime.
        round_seconds: Length of a round on its clock.

    Raises:
        AssertionError: A check failed; names the check.
        ShockwaveError: There is no such runtime, or it failed.
    """
    find_runtime(name)
    for policy in ("fifo", "tiresias-las"):
        asked = Settings(policy, make_pool(8, 4), round_seconds=round_seconds, runtime=name)
        start = make_start(_workload(GAPS_SECONDS[0]), asked)
        where = f"{JOBS} jobs under {policy}"
        first = _Checked(start, where).run()
        if not prepare(start).place.live:
            assert _Checked(start, where).run() == first, f"{where}: a repeated run differs"
    _check_calls(start)


def _check_calls(start: Start) -> None:
    """Check calls that are rare in runs: repeated ones, moves, withdrawals, an idle round."""
    workload = start.workload
    seconds = {truth.job_id: truth.isolated_seconds for truth in workload.truths}
    jobs = sorted(workload.specs, key=lambda job: seconds[job.job_id])
    small = [job for job in jobs if job.demand.least <= 4]
    waits, gone, goes = small[0], small[-2], small[-1]
    here, there = (tuple(range(at, at + goes.demand.least)) for at in (0, 4))
    with closing(prepare(start).place.open(make_terms(start.header, "kit"), BEGINNING)) as runtime:
        for _ in range(2):
            runtime.admit([waits, gone, goes])
        kinds = [runtime.launch(0, [Lease(goes.job_id, here)])[0].kind for _ in range(2)]
        assert kinds == [EventKind.STARTED, EventKind.RENEWED], (
            f"launched twice, it reports {kinds}"
        )
        runtime.advance(None)
        seen = runtime.observe()
        assert [report.job_id for report in seen.progress] == [goes.job_id], (
            "the job that ran reports progress"
        )
        reports, clock = list(seen.reports), seen.clock_seconds

        for job_id in (waits.job_id, 1_000_000):
            runtime.withdraw(job_id)
        (moved,) = runtime.launch(1, [Lease(goes.job_id, there)])
        assert moved.kind in (EventKind.RESUMED, EventKind.RENEWED), (
            f"moved, it reports {moved.kind}"
        )
        runtime.advance(None)
        seen = runtime.observe()
        ended = [(event.job_id, event.kind) for event in seen.finished]
        assert ended == [(waits.job_id, EventKind.WITHDRAWN)], (
            f"one job should be withdrawn; reported: {ended}"
        )
        runtime.reap(seen.ended)
        reports += seen.reports

        (taken,) = runtime.preempt({goes.job_id: "the kit says so"})
        assert taken.kind is EventKind.PREEMPTED, f"preempted, it reports {taken.kind}"
        runtime.advance(seen.clock_seconds + 10.0)
        seen = runtime.observe()
        assert not seen.progress, "nothing runs, but it reports progress"
        assert seen.clock_seconds > clock, "the clock stands still in an idle round"
        runtime.launch(3, [Lease(gone.job_id, tuple(range(gone.demand.least)))])
        runtime.advance(None)
        runtime.observe()
        runtime.reap([gone.job_id])  # abandoned while it runs

        (back,) = runtime.launch(4, [Lease(goes.job_id, here)])
        assert back.kind is EventKind.RESUMED, (
            f"launched after a preemption, it reports {back.kind}"
        )
        for _ in range(MOST_ROUNDS):
            runtime.advance(None)
            seen = runtime.observe()
            reports += seen.reports
            if seen.finished:
                break
        ends = [(event.job_id, event.kind) for event in seen.finished]
        assert ends == [(goes.job_id, EventKind.FINISHED)], f"one job should end; reported: {ends}"
        done = sum(report.epochs for report in reports if report.job_id == goes.job_id)
        assert done == goes.epochs, f"a job of {goes.epochs} epochs ended after {done}"
        runtime.reap(seen.ended)


def _workload(gap_seconds: float) -> Workload:
    made = generate_workload(
        JOBS, rng=np.random.default_rng(7), mean_interarrival_seconds=gap_seconds
    )
    specs = (replace(spec, consolidate=spec.job_id % 2 == 0) for spec in made.specs)
    return replace(made, specs=tuple(specs))


@dataclass
class _Checked:
    """In-memory sink of a run that checks each record."""

    start: Start
    where: str

    def __post_init__(self) -> None:
        self._invariants = Invariants(self.start.header, self.start.workload)
        self._seen: list[Observation] = []

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        """Check a round against the invariants of an audit."""
        for problem in self._invariants.check(record):
            raise AssertionError(f"{self.where}, round {record.round}: {problem}")
        self._seen.append(record.observation)

    def run(self) -> list[Observation]:
        """Run to the end, check each plan, and return the runtime's reports."""
        with prepare(self.start).open_run(self) as run:
            while not run.finished:
                where = f"{self.where}, round {run.state.round}"
                assert run.state.round < MOST_ROUNDS, f"{where}: some jobs never end"
                run_round(run, partial(self._call, where))
        return self._seen

    @staticmethod
    def _call(where: str, step: Step, run: Run, *inputs: StepResult[Any]) -> StepResult[Any]:
        """See `StepCaller`; checks plans before `solve`."""
        if step is solve:
            (prediction,) = inputs
            _check_plans(run, prediction.value, where)
        return call_step(step, run, *inputs)


def _check_plans(run: Run, this: Prediction, where: str) -> None:
    """Plan the coming round twice; check that the plan is feasible and repeatable."""
    asked = make_situation(run, this)
    assert asked is not None  # no node is ever drained here
    plan = run.policy.plan(asked)
    for problem in find_problems(asked, plan):
        raise AssertionError(f"{where}: {problem}")
    again = replace(run.policy).plan(asked)  # type: ignore[type-var]  # policies are dataclasses
    assert plan == again, f"{where}: the same situation gives another plan; policies keep no state"
    if run.policy.work_conserving and run.header.settings.fidelity is Fidelity.FAIR:
        free = asked.inventory.gpus - sum(map(len, plan.placement.values()))
        for job in asked.jobs:
            idle = job.job_id not in plan.placement and job.gang <= free
            assert not idle, f"{where}: job {job.job_id} waits, and {free} GPUs idle"
