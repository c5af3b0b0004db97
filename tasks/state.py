"""The live state of a run: a fold over its records."""

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

from containers.runtime import BY_ITS_OWNER, EventKind, Observation
from predictor.belief import Belief
from predictor.forecast import Forecast, run_time
from predictor.history import History
from predictor.intervals import Calibration, Scored, is_scored, tenth_of
from predictor.job import EpochLoss, EpochReport, JobSpec
from predictor.learning import learned
from predictor.options import stuck_behind
from predictor.speed_noise import STEADY, SpeedNoise, not_yet_measured
from solver.fair_share import FairShare
from solver.inventory import InService, Inventory
from tasks.backoff import BackOff
from tasks.commands import Command, CommandKind, Orders
from tasks.eligibility import Barred, barred, doomed
from tasks.record import RoundRecord, RunHeader, RuntimeKind, Start
from tasks.sources import JobSource, Taken
from tasks.speeds import LastRound
from tasks.tenancy import Tenancy, gpu_seconds
from tasks.time_held import TimeHeld

KEPT_ENDED = 4096
"""Latest finished jobs that the state of a service has, which never ends. An engineering bound on
memory; no sweep is recorded."""


OfJob = TypeVar("OfJob", EpochReport, EpochLoss)


@dataclass(frozen=True)
class RunState:
    """The live state of a run between two rounds.

    Attributes:
        round: Number of the next round.
        arrived: Number of admitted jobs.
        beliefs: Beliefs about the active jobs, by ascending job id.
        forecasts: Last forecasts of the active jobs, by job id.
        leases: GPUs by job id.
        lease_rounds: Rounds that they have been held, by job id.
        even: Even share of the active jobs.
        backoff: Back-off of jobs whose containers failed.
        held: Time for which active jobs with a limit have held GPUs.
        ended: Final beliefs about the finished jobs, in the order of their ends; of a service
            the latest `KEPT_ENDED`.
        ended_gpu_seconds: GPU time of each of them: its run time on the GPUs of its last lease.
        well: Ids of all finished jobs.
        history: Courses learned from them, and from the header's finished jobs.
        awaited: Forecasts of active jobs to be scored, one a tenth of their epochs, by job id.
        calibration: Scores of the forecasts of finished jobs.
        wavering: How the jobs' speeds waver.
        commanded: Number of commands taken in.
        orders: Standing orders.
        tenancy: What holds for tenants, and what they used of their quotas.
        memory: The policy's last state.
        last_hash: Hash of the last record, or of the header.
    """

    round: int
    arrived: int
    beliefs: Mapping[int, Belief]
    forecasts: Mapping[int, Forecast]
    leases: Mapping[int, tuple[int, ...]]
    lease_rounds: Mapping[int, int]
    even: FairShare
    backoff: BackOff
    held: TimeHeld
    ended: tuple[Belief, ...]
    well: frozenset[int]
    ended_gpu_seconds: tuple[float, ...]
    history: History
    awaited: Mapping[int, tuple[Scored, ...]]
    calibration: Calibration
    wavering: SpeedNoise
    commanded: int
    orders: Orders
    tenancy: Tenancy
    memory: str
    last_hash: str

    @classmethod
    def initial(cls, start: Start) -> "RunState":
        """Before the first round."""
        history, header = History(), start.header
        simulated = header.settings.runtime in (RuntimeKind.VIRTUAL, RuntimeKind.FAITHFUL)
        for job in header.history:
            history = learned(history, job.belief, header.throughputs, header.settings.seed)
        return cls(
            round=0,
            arrived=0,
            beliefs={},
            forecasts={},
            leases={},
            lease_rounds={},
            even=FairShare(),
            backoff=BackOff(),
            held=TimeHeld(),
            ended=(),
            well=frozenset(),
            ended_gpu_seconds=(),
            history=history,
            awaited={},
            calibration=Calibration(),
            wavering=STEADY if simulated else not_yet_measured(header.settings.round_seconds),
            commanded=0,
            orders=Orders(),
            tenancy=Tenancy(),
            memory="",
            last_hash=start.digest,
        )

    def finished(self, source: JobSource) -> bool:
        """Whether every job has arrived, and has ended or is on hold for ever."""
        waiting = self.beliefs.keys() - self.stuck
        return self.round > 0 and not waiting and source.exhausted(self.taken)

    @property
    def stuck(self) -> set[int]:
        """Jobs on hold that are not cancelled, and those that come after them."""
        held = self.orders.held - self.orders.cancelled
        options = {job_id: belief.spec.options for job_id, belief in self.beliefs.items()}
        return stuck_behind(options, {*held}) if held else set()

    @cached_property
    def barred(self) -> Mapping[int, Barred]:
        """Active jobs that may not get GPUs because of other jobs, by job id."""
        return barred(self.beliefs, self.leases, self.orders.not_running, self.tenancy)

    def may_run(self, job_id: int) -> bool:
        """Whether an active job may get GPUs in the coming round."""
        return self.orders.may_run(job_id) and job_id not in self.barred

    def why_cancelled(self, job_id: int) -> str:
        """Why a cancelled job is withdrawn, in words."""
        failed = doomed(self.beliefs, self.well).get(job_id)
        return BY_ITS_OWNER if failed is None else f"job {failed}, before it, did not end well"

    @property
    def taken(self) -> Taken:
        """What was taken in so far."""
        clock = self.even.clock_seconds if self.round else -math.inf
        return Taken(self.arrived, self.commanded, clock)

    def inventory(self, header: RunHeader) -> Inventory:
        """The cluster, with nodes that were added and those that were removed."""
        return header.settings.inventory_in(self.round, self.orders.added)

    def there(self, header: RunHeader) -> Inventory | None:
        """The nodes that were not removed, numbered without gaps; None if all were."""
        return InService(self.inventory(header), tuple(sorted(self.orders.removed))).inventory

    def given_up(self, seen: Observation) -> Observation:
        """A round's observation, with the end of jobs that reached a limit."""
        leases = self.leases.items()
        asked = ((job_id, self.beliefs[job_id].spec.options.retries) for job_id in self.leases)
        seen = self.backoff.given_up(seen, {job_id: n for job_id, n in asked if n >= 0})
        return self.held.given_up(
            seen, {job_id: (self.beliefs[job_id].spec, gpus) for job_id, gpus in leases}
        )

    def observed(
        self,
        header: RunHeader,
        seen: Observation,
        arrivals: Sequence[JobSpec],
        commands: Sequence[Command] = (),
    ) -> tuple["RunState", tuple[int, ...]]:
        """The state updated with a round's observation, before planning.

        Args:
            header: The run's header.
            seen: The runtime's observation.
            arrivals: Jobs admitted.
            commands: Commands taken in.

        Returns:
            The state, and the active jobs to forecast, by ascending job id: jobs that
            arrived, ran or lack a forecast, and waiting jobs whose prior changed
            (`_learned_of`).
        """
        reports = _by_job(seen.reports)
        beliefs, forecasts, leases = dict(self.beliefs), dict(self.forecasts), dict(self.leases)
        inventory = header.settings.inventory_in(self.round - 1, self.orders.added)
        last = LastRound(header, inventory, self.beliefs, self.leases, self.even.clock_seconds)
        for entry in seen.progress:
            belief = beliefs[entry.job_id]
            speed = last.speed(belief, seen)
            beliefs[entry.job_id] = belief.after(reports.get(entry.job_id, ()), entry, speed)
        rounds = [(self.beliefs[entry.job_id], beliefs[entry.job_id]) for entry in seen.progress]
        for job_id, losses in _by_job(seen.losses).items():
            beliefs[job_id] = beliefs[job_id].with_losses(losses)
        ended: list[Belief] = []
        history, awaited, calibration = self.history, dict(self.awaited), self.calibration
        for event in seen.finished:
            leases.pop(event.job_id, None)
            if not event.ends_job:
                continue
            belief = beliefs.pop(event.job_id)
            forecasts.pop(event.job_id, None)
            made = awaited.pop(event.job_id, ())
            whole = event.kind is EventKind.FINISHED
            if whole or self._took_its_limit(seen, belief.spec):
                history = learned(history, belief, header.throughputs, header.settings.seed)
            if not whole:
                continue  # any other truncated trajectory is not learned from
            ended.append(belief)
            calibration = calibration.after(made, belief.reference_seconds)
        beliefs |= {spec.job_id: Belief(spec) for spec in arrivals}
        if arrivals:
            beliefs = dict(sorted(beliefs.items()))
        beliefs |= _with_budgets(beliefs, commands)
        orders = self.orders.after(beliefs.keys(), commands)
        began, ends = self.even.clock_seconds, {e.job_id: e.at_seconds for e in seen.finished}
        held = (
            (self.beliefs[job].spec.tenant, len(gpus), ends.get(job, seen.clock_seconds) - began)
            for job, gpus in self.leases.items()
        )
        used = gpu_seconds(held, self.tenancy.usage)
        tenancy = self.tenancy.after(seen.clock_seconds, used, commands)
        well = self.well.union(belief.spec.job_id for belief in ended) if ended else self.well
        if cancelled := doomed(beliefs, well):
            orders = replace(orders, cancelled=orders.cancelled | cancelled.keys())
        latest = slice(-KEPT_ENDED if header.service else None, None)
        changed = {entry.job_id for entry in seen.progress}
        changed |= {spec.job_id for spec in arrivals} | (beliefs.keys() - forecasts.keys())
        if ended:
            changed |= _learned_of(
                beliefs, [belief.spec for belief in ended], self.history, history
            )
        return replace(
            self,
            arrived=self.arrived + len(arrivals),
            beliefs=beliefs,
            forecasts=forecasts,
            leases=leases,
            even=self.even.after(
                seen.clock_seconds,
                arrivals,
                beliefs,
                InService(
                    header.settings.inventory_in(self.round, orders.added), seen.drained
                ).gpus,
                orders.held | barred(beliefs, leases, orders.not_running, tenancy).keys(),
            ),
            backoff=self.backoff.after(seen, header.settings.round_seconds).without(
                orders.requeued
            ),
            held=self.held.after(seen, (self.beliefs[job_id].spec for job_id in self.leases)),
            ended=(*self.ended, *ended)[latest],
            well=well,
            ended_gpu_seconds=(
                *self.ended_gpu_seconds,
                *[belief.run_seconds * len(self.leases[belief.spec.job_id]) for belief in ended],
            )[latest],
            history=history,
            awaited=awaited,
            calibration=calibration,
            wavering=self.wavering.after(() if header.pairs else rounds, header.throughputs),
            commanded=self.commanded + len(commands),
            orders=orders,
            tenancy=tenancy,
        ), tuple(sorted(changed & beliefs.keys()))

    def _took_its_limit(self, seen: Observation, spec: JobSpec) -> bool:
        """Whether a timed job ended at its limit, which then is how long it took."""
        return spec.timed and spec.job_id in self.leases and self.held.is_over(seen, spec)

    def decided(self, header: RunHeader, record: RoundRecord, digest: str) -> "RunState":
        """The state after a round, from the state updated with the round's observation.

        Args:
            header: The run's header.
            record: The whole round.
            digest: Its hash.
        """
        awaited = dict(self.awaited)
        for found in record.forecasts:
            belief, made = self.beliefs[found.job_id], awaited.get(found.job_id, ())
            if not is_scored(belief):
                continue
            if not made or made[-1].tenth < tenth_of(belief):
                allocation = header.throughputs.reference(belief.spec)
                time = run_time(found, belief.spec, header.throughputs, allocation)
                awaited[found.job_id] = (*made, Scored.of(belief, time, self.wavering))
        return replace(
            self,
            round=record.round + 1,
            forecasts={**self.forecasts, **{found.job_id: found for found in record.forecasts}},
            leases={lease.job_id: lease.gpus for lease in record.leases},
            lease_rounds={
                lease.job_id: self.lease_rounds[lease.job_id] + 1
                if self.leases.get(lease.job_id) == lease.gpus
                else 1
                for lease in record.leases
            },
            awaited=awaited,
            memory=record.memory or self.memory,
            last_hash=digest,
        )


def _with_budgets(beliefs: Mapping[int, Belief], commands: Sequence[Command]) -> dict[int, Belief]:
    """The beliefs about jobs that commands gave another budget."""
    budgets = {
        command.target: command.value
        for command in commands
        if command.kind is CommandKind.BUDGET and command.target in beliefs
    }
    return {
        job_id: replace(beliefs[job_id], spec=replace(beliefs[job_id].spec, budget=budget))
        for job_id, budget in budgets.items()
    }


def _learned_of(
    beliefs: Mapping[int, Belief], ended: Sequence[JobSpec], before: History, after: History
) -> set[int]:
    """Jobs whose prior changed substantially with finished jobs.

    Jobs of the same kind as a finished job, and all jobs of a mode whose number of courses
    reached a power of two.
    """
    kinds = {(spec.mode, spec.cohort) for spec in ended}
    modes = {
        spec.mode
        for spec in ended
        if after.size(spec.mode).bit_length() > before.size(spec.mode).bit_length()
    }
    return {
        job_id
        for job_id, belief in beliefs.items()
        if belief.spec.mode in modes or (belief.spec.mode, belief.spec.cohort) in kinds
    }


def advance(header: RunHeader, state: RunState, record: RoundRecord, digest: str) -> RunState:
    """The state after a further record.

    Args:
        header: The run's header.
        state: The last state.
        record: The round.
        digest: Its hash.
    """
    observed, _ = state.observed(header, record.observation, record.arrivals, record.commands)
    return observed.decided(header, record, digest)


def _by_job(entries: Iterable[OfJob]) -> dict[int, list[OfJob]]:
    """The entries of each job, in order."""
    found: defaultdict[int, list[OfJob]] = defaultdict(list)
    for entry in entries:
        found[entry.job_id].append(entry)
    return found
