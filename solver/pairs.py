"""Jobs, and pairs of jobs on the same GPUs, with their rates."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from predictor.arrays import Floats, Ints
from solver.list_scheduling import Claim
from solver.plan import ActiveJob

ALONE = -1
"""Replaces the second job's index in a row of a single job."""


@dataclass(frozen=True)
class Rows:
    """The candidate rows: each job alone, then paired with each earlier job that fits beside it.

    Attributes:
        members: Indices of the jobs, shape (rows, 2); the second is `ALONE` for a single job.
        gangs: GPUs, shape (rows,).
        rates: Throughputs of both jobs in steps per second, shape (rows, 2, types); 0 where they
            cannot run.
    """

    members: Ints
    gangs: Floats
    rates: Floats

    @property
    def runs(self) -> Any:
        """Whether a row can run on a type, shape (rows, types)."""
        return self.rates[:, 0] > 0.0

    @property
    def alone(self) -> Ints:
        """Row of each job alone, shape (jobs,)."""
        return np.flatnonzero(self.members[:, 1] == ALONE)

    def ratios(self) -> Floats:
        """Return shared over exclusive rates, shape (rows, 2, types); 0 where they cannot run."""
        alone = self.rates[self.alone, 0][self.members]
        found: Floats = np.divide(self.rates, alone, out=np.zeros_like(alone), where=alone > 0.0)
        return found


def make_rows(jobs: Sequence[ActiveJob], types: Sequence[str]) -> Rows:
    """Return the rows of jobs on GPU types."""
    kinds: dict[tuple[Any, ...], int] = {}
    of_kind: list[ActiveJob] = []
    kind = []
    for job in jobs:
        spec = job.spec
        key = spec.model, job.belief.batch_size, spec.opportunistic, job.gang, tuple(job.choices)
        if key not in kinds:
            kinds[key] = len(of_kind)
            of_kind.append(job)
        kind.append(kinds[key])
    single = np.zeros((len(of_kind), len(types)))
    table = np.zeros((len(of_kind), len(of_kind), len(types)))
    for a, first in enumerate(of_kind):
        for allocation in first.choices:
            single[a, types.index(allocation.gpu_type)] = first.rate(allocation)
        for b, second in enumerate(of_kind):
            for allocation in first.choices if first.gang == second.gang else ():
                rate = first.shared_rate(second, allocation)
                table[a, b, types.index(allocation.gpu_type)] = rate
    table *= (table > 0.0) & (table.transpose(1, 0, 2) > 0.0)
    index = np.array(kind)
    later, earlier = np.tril_indices(len(jobs), -1)
    together = table[index[earlier], index[later]].any(axis=1)
    earlier, later = earlier[together], later[together]
    own = np.arange(len(jobs))
    members = np.concatenate(
        [np.stack([own, np.full_like(own, ALONE)], 1), np.stack([earlier, later], 1)]
    )
    pairs = np.stack([table[index[earlier], index[later]], table[index[later], index[earlier]]], 1)
    own_rates = single[index]
    rates = np.concatenate([np.stack([own_rates, np.zeros_like(own_rates)], 1), pairs])
    order = np.lexsort((members[:, 0], members[:, 1] != ALONE, members.max(axis=1)))
    members = members[order]
    gangs = np.array([float(job.gang) for job in jobs])
    return Rows(members, gangs[members[:, 0]], rates[order])


def find_pairs(
    placement: Mapping[int, tuple[int, ...]], order: Iterable[Claim]
) -> tuple[tuple[int, ...], ...]:
    """Return the pairs of jobs whose shared claims were met, each in ascending order."""
    asked = {claim.job_ids for claim in order if claim.other}
    return tuple(
        sorted(
            (min(job, other), max(job, other))
            for job, other in asked
            if job in placement and placement[job] == placement.get(other)
        )
    )
