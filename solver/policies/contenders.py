"""The jobs that compete for shares of time, and Gavel's programs over these shares."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from predictor.arrays import Floats
from solver.backends.interior import find_best_packed_shares, find_best_shares
from solver.inventory import Inventory
from solver.pairs import ALONE, Rows
from solver.plan import ActiveJob, Situation


@dataclass(frozen=True, eq=False)
class Contenders:
    """The active jobs as arrays, one entry per job in the order of the situation.

    A policy divides time among *rows*: each job alone and, with `rows`, pairs of jobs on the same
    GPUs. Shares have shape (rows, types), which is (jobs, types) without pairs.

    Attributes:
        gpus: c, GPUs of each type, shape (types,).
        gangs: g, shape (jobs,).
        rates: Throughputs at the current batch size, in steps per second, shape (jobs, types); 0
            where a job cannot run.
        steps_left: Training steps left at that batch size.
        ages: Seconds since arrival.
        weights: Budgets.
        shares: The last shares of the jobs alone, shape (jobs, types); 0 for new jobs.
        notes: The policy's notes from its last computation.
        prices: Mean price of a GPU-hour of each type over its pools, shape (types,); 0 if unset.
        time_left: Seconds to their deadlines; infinite without one.
        rows: The jobs and the pairs of jobs that may share GPUs; None for jobs alone.
    """

    gpus: Floats
    gangs: Floats
    rates: Floats
    steps_left: Floats
    ages: Floats
    weights: Floats
    shares: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    notes: Sequence[tuple[float, ...]] = ()
    prices: Floats = field(default_factory=lambda: np.zeros(0))
    job_ids: tuple[int, ...] = ()
    tenants: tuple[str, ...] = ()
    time_left: Floats = field(default_factory=lambda: np.zeros(0))
    round_seconds: float = 0.0
    rows: Rows | None = None

    @property
    def speeds(self) -> Floats:
        """Work done in a second, shape (jobs, types): steps, or seconds with a single type.

        The unit decides which of many optimal points a solver finds; these units are published.
        """
        return np.ones_like(self.rates) if len(self.gpus) == 1 else self.rates

    @property
    def work_left(self) -> Floats:
        """Work left in the unit of `speeds`, shape (jobs,)."""
        return self.steps_left / self.rates[:, 0] if len(self.gpus) == 1 else self.steps_left

    @property
    def equal_shares(self) -> Floats:
        """Shares of jobs alone under an equal division of each type, shape (jobs, types).

        They are c_k / (N g_j), divided by their sum over types if that exceeds 1.
        """
        equal = self.gpus / (len(self.gangs) * self.gangs[:, None])
        within: Floats = equal / np.maximum(1.0, equal.sum(axis=1, keepdims=True))
        return within

    @property
    def row_rates(self) -> Floats:
        """Steps per second of each row, summed over both jobs of a pair, shape (rows, types)."""
        both: Floats = self.rates if self.rows is None else self.rows.rates.sum(axis=1)
        return both

    def ignore_types(self) -> "Contenders":
        """Return the jobs as if all types were as fast as the first that a job can run on."""
        first = np.take_along_axis(self.rates, (self.rates > 0.0).argmax(axis=1)[:, None], axis=1)
        return replace(self, rates=np.broadcast_to(first, self.rates.shape))

    def by_row(self, shares: Floats) -> Floats:
        """Convert shares of jobs alone, shape (jobs, types), to shares of all rows."""
        if self.rows is None:
            return shares
        spread = np.zeros_like(self.rows.rates[:, 0])
        spread[self.rows.alone] = shares
        return spread

    def best(
        self,
        *,
        value: Floats | None = None,
        least: Floats | None = None,
        floor_weights: Floats | None = None,
    ) -> Floats:
        """Return the best shares (Gavel, OSDI '20, sections 3.1 and 4.4), shape (rows, types).

        Args:
            value: Maximise Σ value x, shape (rows, types).
            least: Minimum work of each job in a second, shape (jobs,).
            floor_weights: a, shape (jobs,): maximise min_j a_j s_j over the jobs with a finite a_j.

        Raises:
            SolverError: The solver found no solution.
        """
        goals = {"value": value, "least": least, "floor_weights": floor_weights}
        rows = self.rows
        if rows is None:
            return find_best_shares(self.gangs, self.gpus, self.speeds, **goals)
        speeds = self._pair_speeds(rows)
        return find_best_packed_shares(rows.gangs, self.gpus, rows.members, speeds, **goals)

    def work(self, shares: Floats) -> Floats:
        """Return the work that each job does in a second under shares, shape (jobs,)."""
        rows = self.rows
        if rows is None:
            alone: Floats = (self.speeds * shares).sum(axis=1)
            return alone
        work = (self._pair_speeds(rows) * shares[:, None, :]).sum(axis=2)
        taken = rows.members != ALONE
        total = np.zeros(len(self.gangs))
        np.add.at(total, rows.members[taken], work[taken])
        return total

    def _pair_speeds(self, rows: Rows) -> Floats:
        return rows.ratios() if len(self.gpus) == 1 else rows.rates


def rates_by_type(job: ActiveJob, inventory: Inventory) -> tuple[float, ...]:
    """Return a job's throughput on each GPU type; 0 where it cannot run."""
    rates = {choice.gpu_type: job.rate(choice) for choice in job.choices}
    return tuple(rates.get(kind, 0.0) for kind in inventory.types)


def mean_price(inventory: Inventory, gpu_type: str) -> float:
    """Return the mean price of a GPU-hour of a type; 0 if one of its pools has no price."""
    pools = [pool for pool in inventory.pools if pool.gpu_type == gpu_type]
    if not all(pool.price for pool in pools):
        return 0.0
    return sum(pool.price * pool.gpus for pool in pools) / sum(pool.gpus for pool in pools)


def gather(
    situation: Situation,
    shares: Floats,
    notes: Sequence[tuple[float, ...]],
    rows: Rows | None,
) -> Contenders:
    """Return the active jobs of a situation as arrays; see `Contenders` for the arguments."""
    jobs, inventory = situation.jobs, situation.inventory
    ages = situation.clock_seconds - np.array([job.belief.spec.arrival_seconds for job in jobs])
    within = np.array([job.spec.options.deadline_seconds or np.inf for job in jobs])
    return Contenders(
        gpus=np.array(list(inventory.capacities.values()), dtype=float),
        gangs=np.array([job.gang for job in jobs], dtype=float),
        rates=np.array([rates_by_type(job, inventory) for job in jobs]),
        steps_left=np.array([job.belief.steps_left for job in jobs], dtype=float),
        ages=ages,
        weights=np.array([job.belief.spec.budget for job in jobs]),
        shares=shares,
        notes=notes,
        prices=np.array([mean_price(inventory, kind) for kind in inventory.types]),
        job_ids=tuple(job.job_id for job in jobs),
        tenants=tuple(job.spec.tenant for job in jobs),
        time_left=within - ages,
        round_seconds=situation.round_seconds,
        rows=rows,
    )
