"""Packing by trial."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from predictor.errors import InputError
from solver.fidelity import Fidelity
from solver.pairs import ALONE, Rows
from solver.plan import Plan, Situation
from solver.policies.packed_shares import run_packed
from solver.policies.shares import Contenders

SEED = 0
"""Seed of the draws of pairs, as published."""


@dataclass(frozen=True)
class Gandiva:
    """Time slices for all jobs, and random pairs of jobs where GPUs are short.

    Xiao et al., Gandiva (OSDI '18), section 3: jobs take turns, are packed onto the same GPUs by
    trial, and migrate; there is no objective. As the authors of Gavel model it (OSDI '20, section
    7.1): jobs without a partner are paired at random, and each job or pair gets an equal share of
    each GPU type. A pair is dissolved when one of its jobs ends, or when it turns out not to pay:
    when the sum of both jobs' rates over those alone is below 1. Jobs migrate as their turns come:
    to whatever type their share is on.

    Notes: how much the draws so far took of the random generator, from which its state follows;
    then the pairs.

    Attributes:
        fidelity: With `Fidelity.FAIR` a pair is judged by the mean over the types that it can run
            on. With `Fidelity.REFERENCE` by the sum over all types, as published: then nearly every
            pair stays that fits on all types, and no other.
        packed: 0 for time slices only.
    """

    name = "gandiva"
    summary = "equal time slices, and pairs of jobs on the same GPUs by trial"
    source = "Xiao et al., Gandiva (OSDI '18), section 3; as in Gavel (OSDI '20), section 7.1"
    looks_ahead = False
    clairvoyant = False
    work_conserving = True
    several_pools = True
    solver = "none"

    fidelity: Fidelity = Fidelity.FAIR
    packed: float = 1.0

    def plan(self, situation: Situation) -> Plan:
        """See `Policy.plan`."""
        return run_packed(self, self.name, situation)

    def allocate_packed(
        self, jobs: Contenders, rows: Rows, notes: tuple[int, ...]
    ) -> tuple[Floats, tuple[int, ...]]:
        """See `PackingPolicy.allocate_packed`.

        Raises:
            InputError: The notes are of an earlier release.
        """
        words, partners = _read(notes)
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
            partners += _drawn(left, gangs, generator)
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
                # Rounded as published, where the last type that is filled is added up first.
                equal = jobs.gpus / len(taking) / rows.gangs[row]
                shares[row] = equal / max(1.0, equal[::-1].sum())
        flat = [job for pair in partners for job in pair]
        return shares, (generator.words, *flat)


class _Draws(random.Random):
    """A random generator that counts the words taken.

    Args:
        words: Words taken before.

    Attributes:
        words: Words of 32 bits taken so far.
    """

    def __init__(self, words: int) -> None:
        super().__init__(SEED)
        self.words = 0
        if words:
            self.getrandbits(32 * words)

    def getrandbits(self, k: int) -> int:
        """See `random.Random.getrandbits`; all draws go through it."""
        self.words += -(-k // 32)
        return super().getrandbits(k)


def _read(notes: tuple[int, ...]) -> tuple[int, list[tuple[int, int]]]:
    """What the draws so far took, and the pairs of the last computation.

    Earlier releases noted the number of draws, each draw's population, and the pairs. In such notes
    more numbers follow than the first one says, unless there are no pairs; a draw of a pair takes
    two words at least.
    """
    words, *flat = notes or (0,)
    if len(flat) % 2 or len(flat) > words or len(set(flat)) < len(flat):
        raise InputError(
            "memory of gandiva",
            "the round was recorded by an earlier release, whose draws cannot be repeated",
            "replay and resume the run with that release",
        )
    return words, list(zip(flat[::2], flat[1::2], strict=True))


def _drawn(
    jobs: Sequence[int], gangs: Sequence[float], generator: random.Random
) -> list[tuple[int, int]]:
    """Pairs of jobs with gangs of one size, drawn at random.

    There are as many draws as jobs; draws of unequal gangs give no pair.

    Args:
        jobs: Jobs without a partner.
        gangs: Their GPUs.
        generator: The random generator.
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
