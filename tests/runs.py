"""Small runs for tests: made in memory, or written to a warehouse by hand."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from flows.explain.replay import replay
from flows.runs.simulation import prepare
from flows.runs.start import make_start
from predictor.allocation import Demand
from predictor.job import JobSpec
from predictor.throughput import Profile
from solver.inventory import Pool
from solver.plan import Situation
from tasks.commands import Command
from tasks.invariants import Invariants
from tasks.record import (
    Parameter,
    RoundRecord,
    RunHeader,
    RuntimeKind,
    Settings,
    Start,
    Timings,
    hash_record,
    make_pool,
)
from tasks.round import Round, make_situation, run_round, solve_round
from tasks.run import Run
from tasks.sources import Workload
from tasks.state import RunState, advance
from warehouse.store.audit import audit
from warehouse.store.writer import Writer
from warehouse.workloads.generator import generate_workload

POLICIES = ("shockwave", "srtf", "themis")


def tiny(
    policy: str = "shockwave", *, jobs: int = 8, seed: int = 7, gap_seconds: float = 90.0
) -> Start:
    """A workload of some 30 rounds on 8 GPUs; seed 7 has gangs of 1, 2 and 4."""
    workload = generate_workload(
        jobs, rng=np.random.default_rng(seed), mean_interarrival_seconds=gap_seconds
    )
    return make_start(workload, Settings(policy, make_pool(8), round_seconds=600.0, seed=seed))


POOLS = (Pool("v100", 2, 2, 2.48), Pool("p100", 4, 2), Pool("k80", 4, 1))
"""GPUs 0 and 1, 2 to 5, 6 to 9."""

SPEED = {"v100": 1.0, "p100": 0.5, "k80": 0.25}
"""Rates over those of a V100; the rate of an autoencoder on a K80 is 1."""


def mixed(
    policy: str = "srtf",
    *,
    jobs: int = 10,
    seed: int = 7,
    pools: tuple[Pool, ...] = POOLS,
    runtime: RuntimeKind = RuntimeKind.VIRTUAL,
    together: float = 0.0,
    parameters: tuple[Parameter, ...] = (),
    opportunistic: bool = False,
) -> Start:
    """A workload on GPUs of three types; conv-large cannot run on K80s.

    Jobs of different models that share GPUs get a part of their rates, those of one model do not
    fit together. Every other job may be opportunistic.
    """
    workload = generate_workload(jobs, rng=np.random.default_rng(seed))
    rates = {
        (model, size, kind, gpus): rate
        * (SPEED["k80"] / speed if model == "autoencoder" else speed)
        * (model != "conv-large" or kind != "k80")
        for (model, size, _, gpus), rate in workload.profile.rates.items()
        for kind, speed in SPEED.items()
    }
    specs = tuple(
        replace(
            spec,
            demand=Demand.gang(min(spec.demand.least, 2)),
            opportunistic=opportunistic and spec.job_id % 2 == 1,
        )
        for spec in workload.specs
    )
    sizes = {(model, size) for model, size, _, _ in rates}
    pairs = {
        (*first, *second, kind, gpus): together * rates[*first, kind, gpus]
        for first in sizes
        for second in sizes
        for kind in SPEED
        for gpus in (1, 2)
        if together and first[0] != second[0] and rates[*first, kind, gpus]
        if rates[*second, kind, gpus]
    }
    typed = replace(workload, specs=specs, profile=Profile(rates, pairs=pairs))
    settings = Settings(policy, pools, round_seconds=600.0, seed=seed, runtime=runtime)
    return make_start(typed, replace(settings, parameters=parameters))


def start_of(header: RunHeader, workload: Workload) -> Start:
    """What a run begins with, unchecked; the hashes are those that belong to it."""
    header = replace(header, workload=workload.digest)
    return Start(header, workload, hash_record(header))


@dataclass
class Memory:
    """A sink that keeps what it is given."""

    rounds: list[tuple[RoundRecord, str, Timings]] = field(default_factory=list)

    def append(self, record: RoundRecord, digest: str, timings: Timings) -> None:
        self.rounds.append((record, digest, timings))


@dataclass
class Made:
    """A finished run and all that it went through."""

    start: Start
    run: Run
    rounds: list[tuple[RoundRecord, str, Timings]]
    states: list[RunState]

    @property
    def header(self) -> RunHeader:
        return self.start.header

    @property
    def specs(self) -> tuple[JobSpec, ...]:
        return self.start.workload.specs

    @property
    def records(self) -> list[RoundRecord]:
        return [record for record, _, _ in self.rounds]


def make(start: Start) -> Made:
    """Run to the end without a warehouse."""
    sink = Memory()
    with prepare(start).open_run(sink) as run:
        states = [run.state]
        while not run.finished:
            run_round(run)
            states.append(run.state)
    return Made(start, run, sink.rounds, states)


def planned(run: Run) -> tuple[Round, Situation]:
    """The next round up to its plan, and what the policy decided on."""
    this = solve_round(run)
    now = make_situation(run, this)
    assert now
    return this, now


@cache
def ended(policy: str = "shockwave", *, jobs: int = 8, seed: int = 7) -> Made:
    """A run of `tiny` to its end, made once for all tests; they change nothing in it."""
    return make(tiny(policy, jobs=jobs, seed=seed))


def write(
    warehouse: Path,
    start: Start,
    rounds: Iterable[tuple[RoundRecord, str, Timings]],
    *,
    compact: bool = True,
) -> str:
    """Write a run as it is given, right or wrong, and no database of views; returns its id."""
    with Writer(warehouse, start) as writer:
        for record, digest, timings in rounds:
            writer.append(record, digest, timings)
        if compact:
            writer.compact()
        return writer.run


def as_service(workload: Workload, settings: Settings, commands: Iterable[Command] = ()) -> Start:
    """A service whose jobs come before the commands; all are numbered from 1, in their order."""
    known = replace(
        workload,
        specs=tuple(replace(spec, job_id=n) for n, spec in enumerate(workload.specs, 1)),
        truths=tuple(replace(truth, job_id=n) for n, truth in enumerate(workload.truths, 1)),
        commands=tuple(
            replace(command, number=n)
            for n, command in enumerate(commands, len(workload.specs) + 1)
        ),
        service=True,
    )
    return make_start(known, settings, service=True)


def violated(made: Made, records: Iterable[RoundRecord] | None = None) -> list[str]:
    """The invariants that records violate; by default the run's own."""
    invariants = Invariants(made.header, made.start.workload)
    checked = made.records if records is None else records
    return [problem for record in checked for problem in invariants.check(record)]


def check_sound(made: Made) -> None:
    """Every round is sound, every job ends, and the records alone give the state."""
    assert violated(made) == []
    ended = {event.job_id for record in made.records for event in record.finished if event.ends_job}
    assert ended == {spec.job_id for spec in made.specs}
    state = RunState.initial(made.start)
    for record, digest, _ in made.rounds:
        state = advance(made.header, state, record, digest)
    assert state == made.states[-1]


def check_stored(warehouse: Path, made: Made) -> str:
    """Write a run, audit it, and decide it again; returns its id."""
    name = write(warehouse, made.start, made.rounds)
    assert audit(warehouse, name).findings == ()
    assert replay(name, warehouse).differences == []
    return name


def chained(start: Start, records: Sequence[RoundRecord]) -> list[tuple[RoundRecord, str, Timings]]:
    """Records with the hashes that belong to them; round n takes n + 1 ms to solve."""
    rounds, digest = [], start.digest
    for number, record in enumerate(records):
        linked = replace(record, previous_hash=digest)
        digest = hash_record(linked)
        rounds.append((linked, digest, Timings(0.0, 0.0, number + 1.0, 0.0)))
    return rounds
