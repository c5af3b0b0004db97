"""Packing by trial and error."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from solver.fidelity import Fidelity
from solver.pairs import ALONE
from solver.plan import Plan, Policy, Situation
from solver.policies.contenders import Contenders
from solver.policies.shares import run_shares

SEED = 0
"""Seed of the random pairs, as published."""


@dataclass(frozen=True)
class Gandiva(Policy):
    """Time slices for all jobs, and random pairs of jobs when GPUs are short.

    Xiao et al., Gandiva (OSDI '18), section 3: jobs take turns, are packed onto the same GPUs by
    trial, and migrate; there is no objective. This follows Gavel's model of it (OSDI '20, section
    7.1): jobs without a partner are paired at random, and each job or pair gets an equal share of
    each GPU type. A pair is dissolved when one of its jobs ends, or when it does not pay: when the
    sum of both jobs' shared over exclusive rates is below 1. Jobs migrate to the type of their
    share when their turn comes.

    Notes: the number of random words drawn so far, which determines the generator's state; then
    each pair.

    Attributes:
        fidelity: `Fidelity.FAIR` judges a pair by the mean over the types that it can run on.
            `Fidelity.REFERENCE` uses the sum over all types, as published: nearly every pair that
            fits on all types stays, and no other.
        packed: 0 for time slices only.
    """

    name = "gandiva"
    summary = "equal time slices, and pairs of jobs on the same GPUs by trial"
    source = "Xiao et al., Gandiva (OSDI '18), section 3; as in Gavel (OSDI '20), section 7.1"
    reads_forecasts = False
    work_conserving = True
    several_pools = True
    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR
    packed: float = 1.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_shares(self, situation, packed=True)

    def allocate(self, jobs: Contenders) -> tuple[Floats, Sequence[tuple[float, ...]]]:
        """See `SharePolicy.allocate`."""
        rows = jobs.rows
        assert rows is not None
        words, partners = 0, []
        if jobs.notes:
            ((words, *_), *partners) = [tuple(map(int, note)) for note in jobs.notes]
        generator = _Draws(words)
        place = {job_id: number for number, job_id in enumerate(jobs.job_ids)}
        row_of = {tuple(sorted(pair)): row for row, pair in enumerate(rows.members.tolist())}
        gain = rows.ratios().sum(axis=1)

        def stays(first: int, second: int) -> bool:
            if first not in place or second not in place:
                return False
            row = row_of.get((min(place[first], place[second]), max(place[first], place[second])))
            if row is None:
                return False
            there = rows.runs[row]
            if self.fidelity is Fidelity.REFERENCE:
                return bool(there.all() and gain[row].sum() >= 1.0)
            return bool(gain[row][there].mean() >= 1.0)

        partners = [pair for pair in partners if stays(*pair)]
        singles = list(jobs.job_ids)
        if self.packed and jobs.gangs.sum() > jobs.gpus.sum():
            paired = {job for pair in partners for job in pair}
            left = [job_id for job_id in jobs.job_ids if job_id not in paired]
            gangs = [float(jobs.gangs[place[job_id]]) for job_id in left]
            partners += _draw_pairs(left, gangs, generator)
            paired = {job for pair in partners for job in pair}
            singles = [job_id for job_id in jobs.job_ids if job_id not in paired]
            taking = [(place[first], place[second]) for first, second in partners]
        else:
            taking = []
        taking += [(ALONE, place[job_id]) for job_id in singles]
        shares = np.zeros_like(gain)
        for members in taking:
            row = row_of.get((min(members), max(members)))
            if row is not None:
                # Rounded as published, which adds up the types from the last that is filled.
                equal = jobs.gpus / len(taking) / rows.gangs[row]
                shares[row] = equal / max(1.0, equal[::-1].sum())
        return shares, [(generator.words,), *partners]


class _Draws(random.Random):
    """A random generator that counts the 32-bit words drawn; skips the first `words` of them."""

    def __init__(self, words: int) -> None:
        super().__init__(SEED)
        self.words = 0
        if words:
            self.getrandbits(32 * words)

    def getrandbits(self, k: int) -> int:
        """See `random.Random.getrandbits`; all draws call it."""
        self.words += -(-k // 32)
        return super().getrandbits(k)


def _draw_pairs(
    jobs: Sequence[int], gangs: Sequence[float], generator: random.Random
) -> list[tuple[int, int]]:
    """Draw random pairs of jobs with equal gangs.

    There are as many draws as jobs; a draw of unequal gangs gives no pair.
    """
    left, size = list(jobs), dict(zip(jobs, gangs, strict=True))
    pairs = []
    for _ in range(len(jobs)):
        if len(left) < 2:
            break
        first, second = generator.sample(left, 2)
        if size[first] == size[second]:
            left.remove(first)
            left.remove(second)
            pairs.append((first, second))
    return pairs
