"""Add pairs of jobs on the same GPUs as columns to the coming round's market.

A pair costs its GPUs once. Each of its jobs values it at the job's bid on that GPU type times the
shared rate over the exclusive rate. The market decides which pairs run (`solver.backends.packing`),
so no rule for sharing is needed: a job with a high bid is paired only if its partner gains more
than the job loses.
"""

from dataclasses import dataclass

import numpy as np

from predictor.arrays import Floats
from solver.backends.choice import relative_gap
from solver.backends.packing import Packing, PairTable, pack
from solver.list_scheduling import Claim
from solver.market import Market, Price
from solver.pairs import ALONE, make_rows
from solver.plan import Plan, Situation, SolveReport

TOLERANCE = 1e-9
"""Numerical tolerance, as a share of the largest utility."""


@dataclass(frozen=True, eq=False)
class PackedRound:
    """The coming round, cleared with the candidate pairs."""

    market: Market
    pairs: PairTable
    packing: Packing

    def claims(self, situation: Situation) -> list[Claim]:
        """Return the claims of the cleared pairs, the most valuable per GPU first."""
        chosen = np.flatnonzero(self.packing.pairs)
        worth = self.pairs.value[chosen] / self.market.gangs[self.pairs.first[chosen]]
        found = []
        for pair in chosen[np.argsort(-worth, kind="stable")].tolist():
            first, second = int(self.pairs.first[pair]), int(self.pairs.second[pair])
            job, other = (situation.jobs[int(self.market.job_of[row])] for row in (first, second))
            found.append(Claim(job, self.market.allocations[first], other))
        return found

    def report(self, policy: str, plan: Plan, situation: Situation) -> SolveReport:
        """Return the certificate of a plan as it runs.

        Envy of a job that runs alone or waits is defined as in `solver.guarantees`. Both jobs of
        a pair are envious if together they prefer exclusive allocations.
        """
        market, packing = self.market, self.packing
        worth = market.utility
        runs = {
            job: market.rows[job, situation.inventory.gpu_type(gpus[0])]
            for job, gpus in plan.placement.items()
        }
        paired = {job for pair in plan.pairs for job in pair}
        values = {
            frozenset((int(first), int(second))): float(value)
            for first, second, value in zip(
                self.pairs.first, self.pairs.second, self.pairs.value, strict=True
            )
        }
        objective = sum(float(worth[row]) for job, row in runs.items() if job not in paired)
        objective += sum(values[frozenset(runs[job] for job in pair)] for pair in plan.pairs)
        bound = max(packing.bound, objective)
        net = worth - market.gangs * packing.prices[market.type_of]
        likes = dict(
            zip(
                market.job_ids[market.jobs].tolist(),
                np.maximum(np.maximum.reduceat(net, market.jobs), 0.0).tolist(),
                strict=True,
            )
        )
        slack = bound - objective + TOLERANCE * float(worth.max(initial=0.0))
        alone = likes.keys() - paired
        envious = sum(
            likes[job] - (net[runs[job]] if job in runs else 0.0) > slack for job in alone
        )
        for pair in plan.pairs:
            rows = [runs[job] for job in pair]
            earns = values[frozenset(rows)] - float(worth[rows[0]] - net[rows[0]])
            envious += 2 * (sum(likes[job] for job in pair) - earns > slack)
        return SolveReport(
            policy=policy,
            backend="highs",
            reason="pairs of jobs",
            status="optimal",
            objective=objective,
            bound=bound,
            gap=relative_gap(bound, objective),
            prices=tuple(
                Price(kind, price)
                for kind, price in zip(market.types, packing.prices.tolist(), strict=True)
            ),
            envious=int(envious),
        )


def pack_round(situation: Situation, market: Market, gain: float) -> PackedRound:
    """Clear the coming round with pairs whose summed shared over exclusive rates reach `gain`."""
    worth = market.utility
    pairs = _table(situation, market, worth, gain)
    packing = pack(worth, market.gangs, market.job_of, market.type_of, market.capacities, pairs)
    return PackedRound(market, pairs, packing)


def _table(situation: Situation, market: Market, worth: Floats, gain: float) -> PairTable:
    """Return the pairs with high enough summed rates, on each type that both jobs bid on."""
    rows = make_rows(situation.jobs, market.types)
    row_of = np.full((len(situation.jobs), len(market.types)), -1)
    row_of[market.job_of, market.type_of] = np.arange(len(worth))
    ratios = rows.ratios()
    pair, kind = np.nonzero((ratios.sum(axis=1) >= gain) & (rows.members[:, 1:] != ALONE))
    first, second = (row_of[rows.members[pair, n], kind] for n in (0, 1))
    there = (first >= 0) & (second >= 0)
    pair, kind, first, second = pair[there], kind[there], first[there], second[there]
    value = worth[first] * ratios[pair, 0, kind] + worth[second] * ratios[pair, 1, kind]
    return PairTable(first, second, value)
