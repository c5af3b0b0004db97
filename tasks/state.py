"""The live state of a run: a fold over its records."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

from containers.runtime import BY_ITS_OWNER, EventKind, Observation
from predictor.arrivals import add_arrivals
from predictor.belief import Belief
from predictor.forecast import Forecast
from predictor.goodput import Agent
from predictor.job import EpochLoss, EpochReport, JobSpec
from predictor.options import find_blocked
from predictor.throughput import Throughput
from solver.even_cluster import ABSENT
from solver.inventory import InService, Inventory
from tasks.backoff import BackOff
from tasks.commands import Command, CommandKind, Orders
from tasks.eligibility import BlockedJob, find_blocked_jobs, find_failed_dependencies
from tasks.fairness import FairFinishes, make_arrivals
from tasks.learning import EndedJob, Learning
from tasks.record import Estimate, RoundRecord, RunHeader, Start
from tasks.sources import JobSource, SourcePosition
from tasks.speeds import LastRound, isolated_factor
from tasks.tenancy import Tenancy, sum_gpu_seconds
from tasks.time_held import GpuHold, TimeHeld

OfJob = TypeVar("OfJob", EpochReport, EpochLoss)
Value = TypeVar("Value")


@dataclass(frozen=True)
class RunState:
    """The live state of a run between two rounds.

    Attributes:
        last_hash: Hash of the last record, or of the header.
        source_position: How much of the source of jobs and commands was taken in.
        beliefs: Beliefs about the active jobs, by ascending job id.
        arrivals: Latest arrival times, ascending (`predictor.arrivals`).
        lease_rounds: Rounds for which jobs have held these GPUs, by job id.
    """

    round: int = 0
    last_hash: str = ""
    memory: str = ""
    source_position: SourcePosition = field(default_factory=SourcePosition)
    beliefs: Mapping[int, Belief] = field(default_factory=dict)
    forecasts: Mapping[int, Forecast] = field(default_factory=dict)
    leases: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    lease_rounds: Mapping[int, int] = field(default_factory=dict)
    time_held: TimeHeld = field(default_factory=TimeHeld)
    backoff: BackOff = field(default_factory=BackOff)
    arrivals: tuple[float, ...] = ()
    fair_finishes: FairFinishes = field(default_factory=FairFinishes)
    orders: Orders = field(default_factory=Orders)
    tenancy: Tenancy = field(default_factory=Tenancy)
    learning: Learning = field(default_factory=Learning)

    @classmethod
    def initial(cls, start: Start) -> "RunState":
        """Return the state before the first round."""
        return cls(last_hash=start.digest, learning=Learning.initial(start.header))

    def is_finished(self, source: JobSource) -> bool:
        """Return whether every job has arrived, and has ended or is on hold forever."""
        waiting = self.beliefs.keys() - self.stuck
        return self.round > 0 and not waiting and source.is_exhausted(self.source_position)

    @property
    def clock_seconds(self) -> float:
        """The run's clock at the last round boundary."""
        return self.fair_finishes.now.clock_seconds

    @property
    def arrived(self) -> int:
        """Number of admitted jobs."""
        return self.source_position.jobs

    @property
    def stuck(self) -> set[int]:
        """Jobs on hold that are not cancelled, and jobs that depend on them."""
        held = self.orders.held - self.orders.cancelled
        options = {job_id: belief.spec.options for job_id, belief in self.beliefs.items()}
        return find_blocked(options, {*held}) if held else set()

    @cached_property
    def blocked(self) -> Mapping[int, BlockedJob]:
        """Active jobs that may not get GPUs because of other jobs or a quota, by job id."""
        return find_blocked_jobs(self.beliefs, self.leases, self.orders.not_running, self.tenancy)

    @cached_property
    def budgets(self) -> Mapping[int, float]:
        """Budgets in the market of the active jobs that may run, by job id."""
        kept = self.orders.not_running.union(self.blocked)
        running = {job: b.spec.budget for job, b in self.beliefs.items() if job not in kept}
        return running | self.tenancy.divide_budgets(self.beliefs, running)

    def present_budgets(
        self, inventory: Inventory | None, throughput: Throughput
    ) -> dict[int, float]:
        """Return the budgets of the active jobs in the even cluster, by job id.

        `ABSENT` if a job may not run, or if no GPU in service can run it.
        """
        budgets = self.budgets
        return {
            job: budgets[job]
            if job in budgets
            and inventory is not None
            and inventory.can_run(belief.spec, belief.batch_size, throughput)
            else ABSENT
            for job, belief in self.beliefs.items()
        }

    def list_maintained(self, inventory: Inventory, clock_seconds: float) -> set[int]:
        """Return the nodes under maintenance that no job keeps until its end."""
        found = {*self.orders.maintained(clock_seconds)}
        for job_id, gpus in self.leases.items() if found else ():
            if not self.beliefs[job_id].spec.preemptible:
                found -= inventory.nodes_of(gpus)
        return found

    def explain_withdrawal(self, job_id: int) -> str:
        """Return the reason, in words, why a cancelled job is withdrawn."""
        failed = find_failed_dependencies(self.beliefs, self.learning.finished_ids).get(job_id)
        if failed is not None:
            return f"job {failed}, before it, did not end well"
        by = self.orders.cancelled_by.get(job_id)
        return f"by {by}" if by else BY_ITS_OWNER

    def inventory(self, header: RunHeader) -> Inventory:
        """Return the cluster, added and removed nodes included."""
        return header.settings.inventory_in(self.round, self.orders.added)

    def present_inventory(self, header: RunHeader) -> Inventory | None:
        """Return the nodes that were not removed, numbered without gaps; None if all were."""
        return InService(self.inventory(header), tuple(sorted(self.orders.removed))).inventory

    def isolated_inventory(self, header: RunHeader) -> Inventory:
        """Return the nodes whose mean speed defines isolated run times: those left, else all."""
        return self.present_inventory(header) or self.inventory(header)

    def give_up(self, seen: Observation) -> Observation:
        """Add the end of jobs that reached a limit to a round's observation."""
        specs = {job_id: self.beliefs[job_id].spec for job_id in self.leases}
        retries = {
            j: spec.options.retries for j, spec in specs.items() if spec.options.retries >= 0
        }
        seen = self.backoff.give_up(seen, retries)
        if not any(spec.max_seconds for spec in specs.values()):
            return seen
        return self.time_held.give_up(seen, specs, self._measure_holdings(seen))

    def _measure_holdings(self, seen: Observation) -> dict[int, GpuHold]:
        """Return what jobs held in the round, by job id; nothing if nobody has a limit."""
        limited = any([self.beliefs[job_id].spec.max_seconds for job_id in self.leases])
        if not limited and not self.tenancy.usage:
            return {}
        return self.time_held.measure_round(self.leases, seen.finished, seen.clock_seconds)

    def observe(
        self,
        header: RunHeader,
        seen: Observation,
        arrivals: Sequence[JobSpec],
        commands: Sequence[Command] = (),
    ) -> tuple["RunState", tuple[int, ...]]:
        """Return the state after a round's observation, before planning.

        Returns:
            The state, and the active jobs to forecast, by ascending job id: jobs that
            arrived, ran or lack a forecast, and waiting jobs whose prior changed
            (`Learning.changed_priors`); none unless `RunHeader.foresees`.
        """
        beliefs = self._update_beliefs(header, seen)
        trained = [(self.beliefs[e.job_id], beliefs[e.job_id]) for e in seen.progress]
        trained_alone = self._measure_isolated(header, seen, beliefs)
        isolated = trained_alone | {
            event.job_id: event.isolated_seconds
            for event in seen.finished
            if event.ends_job and event.isolated_seconds
        }
        ratios = {job: isolated[job] / alone for job, alone in trained_alone.items() if alone > 0.0}
        held = self._measure_holdings(seen)
        ended = self._ended_jobs(seen, beliefs, ratios, held)
        learning = self.learning.after(header, ended, () if header.pairs else trained)
        beliefs = _admit(header, beliefs, seen.ended, arrivals, commands)
        state = replace(
            self,
            source_position=self.source_position.after(seen.clock_seconds, arrivals, commands),
            beliefs=beliefs,
            forecasts=_without(self.forecasts, seen.ended),
            leases=_without(self.leases, (event.job_id for event in seen.finished)),
            time_held=self.time_held.after_round(seen, self._limited(held)),
            orders=self._update_orders(beliefs, commands, learning),
            tenancy=self.tenancy.after(seen.clock_seconds, self._by_tenant(held), commands),
            learning=learning,
        )
        backoff = self.backoff.after(seen, header.settings.round_seconds)
        clock = seen.clock_seconds
        inventory = state.inventory(header)
        out = {*seen.drained, *state.list_maintained(inventory, clock)}
        nodes = InService(inventory, sorted(out))
        budgets = state.present_budgets(nodes.inventory, header.throughputs)
        state = state._with(
            backoff=backoff.without(state.orders.requeued),
            arrivals=add_arrivals(self.arrivals, arrivals),
            fair_finishes=self.fair_finishes.after(
                clock,
                make_arrivals(arrivals, budgets),
                budgets,
                nodes.gpus,
                isolated,
                foreseen=header.foresees,
            ),
        )
        if not header.foresees:
            return state, ()
        changed = {entry.job_id for entry in seen.progress} | {spec.job_id for spec in arrivals}
        changed |= beliefs.keys() - state.forecasts.keys()
        changed |= learning.changed_priors(self.learning, ended, beliefs)
        return state, tuple(sorted(changed & beliefs.keys()))

    def _update_beliefs(self, header: RunHeader, seen: Observation) -> dict[int, Belief]:
        beliefs, reports = dict(self.beliefs), _by_job(seen.reports)
        inventory = header.settings.inventory_in(self.round - 1, self.orders.added)
        last = LastRound(header, inventory, self.beliefs, self.leases, self.clock_seconds)
        for entry in seen.progress:
            belief = beliefs[entry.job_id]
            new = reports.get(entry.job_id, ())
            belief = belief.after(new, entry, last.measure_speed(belief, seen))
            if belief.agent:
                placement = last.find_placement(entry.job_id)
                belief = belief.with_measurements(new, placement)
            beliefs[entry.job_id] = belief
        for job_id, losses in _by_job(seen.losses).items():
            beliefs[job_id] = beliefs[job_id].with_losses(losses)
        return beliefs

    def _measure_isolated(
        self, header: RunHeader, seen: Observation, beliefs: Mapping[int, Belief]
    ) -> dict[int, float]:
        """Return the isolated run times of the jobs that ended, judging by their training."""
        inventory = self.isolated_inventory(header)
        return {
            event.job_id: (belief := beliefs[event.job_id]).reference_seconds
            * isolated_factor(belief, header.throughputs, inventory)
            for event in seen.finished
            if event.ends_job
        }

    def _ended_jobs(
        self,
        seen: Observation,
        beliefs: Mapping[int, Belief],
        ratios: Mapping[int, float],
        held: Mapping[int, GpuHold],
    ) -> list[EndedJob]:
        """List the jobs that ended, in the order of their ends."""
        ended = []
        for event in seen.finished:
            if event.ends_job:
                belief = beliefs[event.job_id]
                job = belief.spec
                timed = job.timed and job.job_id in self.leases
                ended.append(
                    EndedJob(
                        belief,
                        gpus=len(self.leases.get(event.job_id, ())),
                        isolated_ratio=ratios.get(event.job_id, 1.0),
                        finished=event.kind is EventKind.FINISHED,
                        at_limit=timed and self.time_held.is_over(job, held[job.job_id].seconds),
                    )
                )
        return ended

    def _update_orders(
        self, beliefs: Mapping[int, Belief], commands: Sequence[Command], learning: Learning
    ) -> Orders:
        """Add new commands to the orders, and cancel jobs that depend on a failed job."""
        orders = self.orders.after(beliefs.keys(), commands)
        failed = find_failed_dependencies(beliefs, learning.finished_ids)
        return replace(orders, cancelled=orders.cancelled | failed.keys()) if failed else orders

    def _limited(self, held: Mapping[int, GpuHold]) -> dict[int, float]:
        """Return the seconds that jobs with a limit held GPUs, by job id."""
        return {job: held[job].seconds for job in held if self.beliefs[job].spec.max_seconds}

    def _by_tenant(self, held: Mapping[int, GpuHold]) -> dict[str, float]:
        """Return the GPU-seconds that jobs held, by tenant with a quota."""
        times = ((self.beliefs[job].spec.tenant, held[job].gpu_seconds) for job in held)
        return sum_gpu_seconds(times, self.tenancy.usage)

    def measure_rho(self, header: RunHeader, finishes: Mapping[int, float]) -> dict[int, float]:
        """Return ρ of active jobs, by job id, if they end at these times on the clock.

        Jobs that may not run now are left out.
        """
        settings = header.settings
        arrivals = {job: self.beliefs[job].spec.arrival_seconds for job in finishes}
        return self.fair_finishes.measure_rho(
            finishes, arrivals, settings.round_seconds, settings.restart_seconds
        )

    def expect(self, estimates: Iterable[Estimate]) -> "RunState":
        """Return the state with new forecasts of when jobs end in the even cluster."""
        seconds = {found.job_id: found.isolated_seconds for found in estimates}
        return self._with(fair_finishes=self.fair_finishes.expect(seconds)) if seconds else self

    def with_forecasts(self, forecasts: Iterable[Forecast]) -> "RunState":
        """Return the state with new forecasts, which replace earlier ones of the same jobs."""
        new = {found.job_id: found for found in forecasts}
        return self._with(forecasts={**self.forecasts, **new})

    def _with(self, **changes: Any) -> "RunState":
        """Return the state with changes that concern neither blocked jobs nor budgets."""
        found = replace(self, **changes)
        vars(found).update({name: vars(self)[name] for name in _CACHED if name in vars(self)})
        return found

    def decide(self, header: RunHeader, record: RoundRecord, digest: str) -> "RunState":
        """Return the state after a whole round, given this state as of its estimates."""
        new = {forecast.job_id: forecast for forecast in record.forecasts}
        before, rounds = self.leases, self.lease_rounds
        held = self.time_held.measure_dispatch(before, record.events)
        return replace(
            self,
            round=record.round + 1,
            last_hash=digest,
            memory=record.memory or self.memory,
            forecasts={**self.forecasts, **new},
            leases={lease.job_id: lease.gpus for lease in record.leases},
            time_held=self.time_held.after_dispatch(record.events, self._limited(held)),
            tenancy=self.tenancy.charge(self._by_tenant(held)),
            lease_rounds={
                job: rounds[job] + 1 if before.get(job) == gpus else 1
                for job, gpus in ((lease.job_id, lease.gpus) for lease in record.leases)
            },
            learning=self.learning.with_forecasts(header, record.forecasts, self.beliefs),
        )


_CACHED = "blocked", "budgets"


def advance(header: RunHeader, state: RunState, record: RoundRecord, digest: str) -> RunState:
    """Return the state after a further record."""
    seen, _ = state.observe(header, record.observation, record.arrivals, record.commands)
    return seen.expect(record.estimates).decide(header, record, digest)


def _admit(
    header: RunHeader,
    beliefs: dict[int, Belief],
    ended: Iterable[int],
    arrivals: Sequence[JobSpec],
    commands: Sequence[Command],
) -> dict[int, Belief]:
    """Remove ended jobs, add new jobs, and set the budgets that commands gave."""
    beliefs = _without(beliefs, ended)
    for spec in arrivals:
        app = header.throughputs.applications.get(spec.model)
        agent = Agent.of(spec, app) if app and header.adapts else None
        beliefs[spec.job_id] = Belief(spec, agent=agent)
    if arrivals:
        beliefs = dict(sorted(beliefs.items()))
    for command in commands:
        if command.kind is CommandKind.BUDGET and command.target in beliefs:
            belief = beliefs[command.target]
            spec = replace(belief.spec, budget=command.value)
            beliefs[command.target] = replace(belief, spec=spec)
    return beliefs


def _without(of_jobs: Mapping[int, Value], gone: Iterable[int]) -> dict[int, Value]:
    found = dict(of_jobs)
    for job_id in gone:
        found.pop(job_id, None)
    return found


def _by_job(entries: Iterable[OfJob]) -> dict[int, list[OfJob]]:
    found: defaultdict[int, list[OfJob]] = defaultdict(list)
    for entry in entries:
        found[entry.job_id].append(entry)
    return found
