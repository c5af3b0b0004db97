"""Additional rows of the program over time: limits on the use of a GPU type in an interval.

They are valid inequalities: every timetable satisfies them, but not every solution does.
"""

from typing import NamedTuple

import numpy as np

from predictor.arrays import Bools, Floats, Ints


class Limits(NamedTuple):
    """Rows Σ_j a_j y_jkt ≤ R L_t, each for a type k in an interval t.

    `times` are t, `kinds` k and `room` R, of shape (rows,); `takes` are a, of shape (rows, jobs).
    """

    times: Ints
    kinds: Ints
    takes: Floats
    room: Floats

    @classmethod
    def none(cls, jobs: int) -> "Limits":
        """Return limits without rows for a number of jobs."""
        nowhere = np.zeros(0, dtype=np.int64)
        return cls(nowhere, nowhere, np.zeros((0, jobs)), np.zeros(0))

    def only(self, some: Bools) -> "Limits":
        """Return the rows selected by a mask of shape (rows,)."""
        return Limits(self.times[some], self.kinds[some], self.takes[some], self.room[some])

    def taken(self, seconds: Floats) -> Floats:
        """Return how much y, shape (intervals, types, jobs), uses of each row, shape (rows,)."""
        there = seconds[self.times, self.kinds]
        found: Floats = np.einsum("aj,aj->a", self.takes, there)
        return found

    def priced(self, costs: Floats, prices: Floats) -> Floats:
        """Add the prices of rows, shape (rows,), to costs of a second, (intervals, types, jobs)."""
        if len(prices):
            np.add.at(costs, (self.times, self.kinds), self.takes * prices[:, None])
        return costs
