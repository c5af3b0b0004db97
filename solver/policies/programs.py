"""Gavel's programs over shares of time, of jobs alone or of jobs and pairs."""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from solver.backends.interior import find_best_packed_shares, find_best_shares
from solver.pairs import ALONE, Rows
from solver.policies.shares import Contenders


@dataclass(frozen=True, eq=False)
class Program:
    """The shares of time, and the work that they give each job.

    Narayanan et al., Gavel (OSDI '20), sections 3.1 and 4.4. Shares have the shape (jobs, types),
    with pairs (rows, types): rows are then those of `rows`.

    Attributes:
        jobs: The jobs.
        rows: The jobs and the pairs of jobs that may share GPUs; None where none does.
    """

    jobs: Contenders
    rows: Rows | None = None

    @property
    def rates(self) -> Floats:
        """Steps per second of each share, of both jobs together in pairs, shaped as shares."""
        both: Floats = self.jobs.rates if self.rows is None else self.rows.rates.sum(axis=1)
        return both

    def best(
        self,
        *,
        value: Floats | None = None,
        least: Floats | None = None,
        floor_weights: Floats | None = None,
    ) -> Floats:
        """The best shares; see `solver.backends.interior.find_best_shares`.

        Args:
            value: Maximise Σ value x, shaped as shares.
            least: Least work that each job does in a second, shape (jobs,).
            floor_weights: a, shape (jobs,): maximise min_j a_j s_j over the jobs with a finite a_j.

        Raises:
            SolverError: The solver found no solution.
        """
        jobs, rows = self.jobs, self.rows
        if rows is None:
            return find_best_shares(
                jobs.gangs,
                jobs.gpus,
                jobs.speeds,
                value=value,
                least=least,
                floor_weights=floor_weights,
            )
        return find_best_packed_shares(
            rows.gangs,
            jobs.gpus,
            rows.members,
            self._row_speeds(rows),
            value=value,
            least=least,
            floor_weights=floor_weights,
        )

    def equal(self) -> Floats:
        """Shares under an equal division of each type, each job alone."""
        if self.rows is None:
            return self.jobs.equal_shares
        shares = np.zeros_like(self.rows.rates[:, 0])
        shares[self.rows.alone] = self.jobs.equal_shares
        return shares

    def speeds(self, shares: Floats) -> Floats:
        """Work that shares give each job in a second, shape (jobs,)."""
        jobs, rows = self.jobs, self.rows
        if rows is None:
            alone: Floats = (jobs.speeds * shares).sum(axis=1)
            return alone
        work = (self._row_speeds(rows) * shares[:, None, :]).sum(axis=2)
        taken = rows.members != ALONE
        speeds = np.zeros(len(jobs.gangs))
        np.add.at(speeds, rows.members[taken], work[taken])
        return speeds

    def _row_speeds(self, rows: Rows) -> Floats:
        """Work of both jobs in a second, in the unit of `Contenders.speeds`."""
        return rows.ratios() if len(self.jobs.gpus) == 1 else rows.rates
