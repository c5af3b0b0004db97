"""The market of a round in which jobs choose how many GPUs they run on.

A job bids on configurations, entries of its menu: a power of two of GPUs on a node, or whole nodes.
An hour less of its run time is worth its delay price λ_j, in hours of all active jobs, so it bids

    U_j(c) = λ_j s_j(c) (1 - r / stay_j(c))

on configuration c. s_j is its speed there over its speed on one GPU. A restart of r seconds, if c
is not what it holds, is paid off while it stays: until its end, but no longer than `LONGEST_STAY`.

Delay prices are those of a fluid: jobs run at their present speeds to their ends, the one with the
most work last, GPUs are divisible, and no job arrives. At its optimum the market is worth at every
moment what waiting then costs (Pontryagin's principle), so for the i jobs with the most work left

    max { Σ λ_j s_j(c_j) : Σ k(c_j) ≤ G } = Σ B_j + μ

where B_j is a job's budget and μ the worth of makespan. A GPU counts as much as jobs are faster on
its type than on others. By duality, one job after the other,

    λ_i = max_π min_c (B_1 + … + B_i + μ - Φ_{i-1}(π) + π k(c)) / s_i(c)
    Φ_i(π) = π G + Σ_{j ≤ i} max(0, max_c λ_j s_j(c) - π k(c))

With speeds k^q these are the prices of heSRPT (Berg, Vesilo and Harchol-Balter, 2020); with jobs of
one GPU they are those of shortest remaining processing time. On several GPU types, jobs of alike
work get the mean of their prices, so that none swap GPUs every other round.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from predictor.allocation import Allocation
from predictor.application import StepTime
from predictor.arrays import Bools, Floats, Ints
from predictor.goodput import Agent, StepModel, find_goodputs, fit_step_model
from predictor.rows import from_json, to_json
from solver.backends import RELATIVE_GAP
from solver.backends.choice import Solution, relative_gap
from solver.backends.configurations import (
    choose_configurations,
    choose_on_one_type,
    price_gpus,
)
from solver.clearing import certify
from solver.configurations import describe, list_configurations, node_sizes
from solver.guarantees import audit_types
from solver.list_scheduling import Claim, next_round
from solver.market import Market
from solver.plan import ActiveJob, Plan, Situation

LONGEST_STAY = 300.0
"""Longest time, in seconds, for which a job is expected to keep its GPUs."""

MAKESPAN = 1.0
"""μ, the worth of a second of makespan, in seconds of completion of a job."""

PRICES = 240
"""Prices π that are compared, in equal ratios: they are 3 % apart. A numerical bound."""

LEAST_PRICE = 1e-3
"""The least of them, as a share of the greatest."""

ALIKE = 0.1
"""Relative difference of work up to which jobs have equal delay prices per budget on several GPU
types: otherwise those that might end last take turns on the fastest GPUs. Chosen by hand."""

LEAST_LEFT = 1e-3
"""Least seconds left that are reckoned with: a job whose end is not seen yet has none. A numerical
bound."""

FIRST_GUESS = 3_600.0
"""Seconds on one GPU that are expected of a job of an application of which nothing is known."""


@dataclass(frozen=True)
class Experience:
    """The policy's memory between plans: what the jobs of each application measured.

    Attributes:
        steps: Step times: the first of each number of nodes and GPUs and power of two of the local
            batch size.
        noise: Squared norm and variance of the gradient, as first seen.
    """

    steps: Mapping[str, tuple[StepTime, ...]] = field(default_factory=dict)
    noise: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def after(self, jobs: Sequence[ActiveJob]) -> "Experience":
        """Return the experience with what active jobs measured; itself if there is no news."""
        steps, noise = dict(self.steps), dict(self.noise)
        for agent in (job.belief.agent for job in jobs):
            if agent is None or agent.noise is None:
                continue
            noise.setdefault(agent.app.name, agent.noise)
            known = steps.get(agent.app.name, ())
            seen = set(map(_kind, known))
            for step in agent.steps:
                if _kind(step) not in seen:
                    seen.add(_kind(step))
                    known = (*known, step)
            steps[agent.app.name] = known
        return self if (steps, noise) == (self.steps, self.noise) else Experience(steps, noise)


def _kind(step: StepTime) -> tuple[int, int, int]:
    return step.nodes, step.gpus, step.local_batch_size.bit_length()


@dataclass(frozen=True)
class Offers:
    """The configurations on which jobs bid, one row each; a job's rows are adjacent.

    Attributes:
        job_of: Job index, shape (rows,).
        left: Seconds until the job's end if it keeps the configuration, shape (rows,).
        moves: Whether the job restarts, shape (rows,).
    """

    job_of: Ints
    allocations: tuple[Allocation, ...]
    left: Floats
    moves: Bools

    @property
    def gpus(self) -> Ints:
        """GPUs of each row, shape (rows,)."""
        return np.array([found.gpus for found in self.allocations], np.int64)

    @property
    def firsts(self) -> Ints:
        """The first row of each job, shape (jobs,)."""
        return np.flatnonzero(np.diff(self.job_of, prepend=-1))


def make_offers(situation: Situation, experience: Experience) -> Offers:
    """List the configurations of active jobs, at least one, and how long jobs would need on each.

    All jobs of an application share a model of step times. A job of an unknown application bids on
    the first entry of its menu only, and a job that is still restarting on what it holds.
    """
    jobs, sizes = situation.jobs, node_sizes(situation.inventory)
    menus: list[list[Allocation]] = []
    for job in jobs:
        found, agent = list_configurations(job, sizes), job.belief.agent
        restarts = job.lease_rounds * situation.round_seconds < situation.restart_seconds
        if agent and agent.app.name not in experience.steps:
            found = found[:1]
        elif job.held and restarts:
            found = [entry for entry in found if entry.same_but_for_nodes(job.held)] or found
        menus.append(found)
    job_of = np.repeat(np.arange(len(jobs)), [len(menu) for menu in menus])
    allocations = tuple(entry for menu in menus for entry in menu)
    left = np.full(len(allocations), FIRST_GUESS)
    moves = np.ones(len(allocations), bool)
    models = {name: fit_step_model(steps) for name, steps in experience.steps.items()}
    end = 0
    for job, menu in zip(jobs, menus, strict=True):
        rows, end = slice(end, end + len(menu)), end + len(menu)
        if job.held:
            moves[rows] = [not job.held.same_but_for_nodes(entry) for entry in menu]
        agent = job.belief.agent
        if agent is None:
            left[rows] = [max(job.run_time(entry).remaining, LEAST_LEFT) for entry in menu]
        elif model := models.get(agent.app.name):
            noise = agent.noise or experience.noise[agent.app.name]
            left[rows] = _predict_seconds(job, agent, model, noise, menu)
    return Offers(job_of, allocations, left, moves)


def _predict_seconds(
    job: ActiveJob,
    agent: Agent,
    model: StepModel,
    noise: tuple[float, float],
    menu: Sequence[Allocation],
) -> Floats:
    """Return the seconds until a job's end on each configuration; infinite where it cannot run.

    Work left is declared: epochs of steps at the initial batch size. Gradients stay as noisy as
    they are.
    """
    app = agent.app
    nodes, gpus, relative = describe(job, app, menu)
    goodputs, _, _ = find_goodputs(app, model, noise, nodes, gpus, agent.sizes)
    speeds = goodputs * relative
    work = max(app.progress_after(app.epochs) * (1.0 - job.belief.share_done), 1.0)
    left = np.full(len(menu), np.inf)
    np.divide(work, speeds, where=speeds > 0.0, out=left)
    return left


def value_offers(situation: Situation, offers: Offers) -> Floats:
    """Return what each offer is worth, U, shape (rows,), at least 0; 0 where a job cannot run."""
    job_of, left, restart = offers.job_of, offers.left, situation.restart_seconds
    work = (left * offers.gpus)[offers.firsts]
    speeds = work[job_of] / left
    # Even where restarts are long, a job that holds nothing is worth a start.
    stay = np.minimum(max(LONGEST_STAY, 2.0 * restart), left + restart)
    kept = np.where(offers.moves, np.maximum(1.0 - restart / stay, 0.0), 1.0)
    budgets, weights = _budgets(situation), weigh_gpus(offers)
    capacity = sum(
        weights.get(kind, 0.0) * gpus for kind, gpus in situation.inventory.capacities.items()
    )
    # A type without a weight runs no job: its rows have no speed.
    shares = offers.gpus * np.array(
        [weights.get(entry.gpu_type, 1.0) for entry in offers.allocations]
    )
    prices = price_delays(job_of, shares, speeds, work, budgets, capacity)
    if len(weights) > 1:
        prices = level_prices(prices, work, budgets)
    return np.asarray(prices[job_of] * speeds * kept)


def weigh_gpus(offers: Offers) -> dict[str, float]:
    """Return the geometric mean speed of jobs on a GPU of each type on which any can run.

    A speed is that on the fewest GPUs, relative to the same job's on the type on which most can
    run; 1 for a type that shares no job with that one.
    """
    needs: defaultdict[str, dict[int, float]] = defaultdict(dict)
    for job, entry, left in zip(
        offers.job_of.tolist(), offers.allocations, offers.left.tolist(), strict=True
    ):
        if np.isfinite(left):
            needs[entry.gpu_type].setdefault(job, left * entry.gpus)
    base = max(needs.values(), key=len, default={})
    weights = {}
    for kind, found in needs.items():
        speeds = [base[job] / need for job, need in found.items() if job in base]
        weights[kind] = float(np.exp(np.mean(np.log(speeds)))) if speeds else 1.0
    return weights


def price_delays(
    job_of: Ints, gpus: Floats, speeds: Floats, work: Floats, budgets: Floats, capacity: float
) -> Floats:
    """Return the delay prices λ, shape (jobs,), at least 0.

    Args:
        job_of: Job of each configuration, ascending, shape (rows,).
        gpus: GPUs of each configuration, weighted by their types' speeds, shape (rows,).
        speeds: Speed there over that on one GPU, shape (rows,); 0 where a job cannot run.
        work: Seconds of work left on one GPU, shape (jobs,).
        budgets: B, shape (jobs,).
        capacity: G, GPUs of all types, weighted alike.
    """
    dearest = (budgets.sum() + MAKESPAN) / capacity
    grid = dearest * np.append(0.0, np.geomspace(LEAST_PRICE, 1.0, PRICES))
    worth, cost, found = grid * capacity, MAKESPAN, np.zeros(len(work))
    starts = np.searchsorted(job_of, np.arange(len(work) + 1))
    for job in np.argsort(-work / budgets, kind="stable").tolist():
        cost += budgets[job]
        rows = np.arange(starts[job], starts[job + 1])
        rows = rows[speeds[rows] > 0.0]
        if len(rows):
            rent = grid[:, None] * gpus[rows]
            needed = ((cost - worth)[:, None] + rent) / speeds[rows]
            found[job] = max(float(needed.min(axis=1).max()), 0.0)
            worth = worth + np.maximum((found[job] * speeds[rows] - rent).max(axis=1), 0.0)
    return found


def level_prices(prices: Floats, work: Floats, budgets: Floats) -> Floats:
    """Return the mean delay prices of jobs with alike work; arguments are of `price_delays`."""
    logs = np.log(work / budgets)
    order = np.argsort(logs, kind="stable")
    ranked, sums = logs[order], np.append(0.0, np.cumsum((prices / budgets)[order]))
    first = np.searchsorted(ranked, logs - ALIKE)
    end = np.searchsorted(ranked, logs + ALIKE, side="right")
    return np.asarray(budgets * (sums[end] - sums[first]) / (end - first))


def _budgets(situation: Situation) -> Floats:
    budgets = np.array([job.spec.budget for job in situation.jobs])
    return np.asarray(budgets / budgets.mean())


def plan_sizes(policy: str, situation: Situation) -> Plan:
    """Plan a round with elastic jobs, at least one: the configurations of the greatest total worth.

    The report has the prices of GPUs and the bound of the integer program. A job's recorded bid is
    that on what it gets, or else on what it likes best at these prices, by GPU type.
    """
    before = from_json(Experience, situation.memory)
    experience = before.after(situation.jobs)
    offers = make_offers(situation, experience)
    worth = value_offers(situation, offers)
    budgets, capacities = _budgets(situation)[offers.job_of], situation.inventory.capacities
    ids = np.array([job.job_id for job in situation.jobs])[offers.job_of]
    kinds, limits = situation.inventory.types, np.array([*capacities.values()], np.int64)
    market = Market(kinds, limits, ids, offers.allocations, budgets, worth)
    values: list[dict[Allocation, float]] = [{} for _ in situation.jobs]
    for job, entry, value in zip(
        offers.job_of.tolist(), offers.allocations, worth.tolist(), strict=True
    ):
        values[job][entry] = value
    one_type = len(kinds) == 1
    per_gpu, most = price_gpus(values, capacities)
    chosen, bound = (
        choose_on_one_type(values, int(limits[0]))
        if one_type
        else choose_configurations(values, capacities, (per_gpu, most))
    )
    prices = np.array([per_gpu[kind] for kind in kinds])
    claims = [
        Claim(job, entry)
        for job, entry in zip(situation.jobs, chosen, strict=True)
        if entry is not None
    ]
    claims.sort(key=lambda claim: -claim.allocation.gpus)
    placement = next_round(situation, claims)
    runs = np.array(
        [
            situation.jobs[job].job_id in placement and chosen[job] == entry
            for job, entry in zip(offers.job_of.tolist(), offers.allocations, strict=True)
        ]
    )
    net = worth - market.gangs * prices[market.type_of]
    shown = np.lexsort((-net, ~runs, market.type_of, market.job_of))
    first = np.diff(market.job_of[shown] * len(kinds) + market.type_of[shown], prepend=-1) > 0
    bids = shown[first]
    rows = np.flatnonzero(runs)
    objective = float(worth[rows].sum())
    dual = float(limits @ prices) + float(
        np.maximum(np.maximum.reduceat(net, offers.firsts), 0.0).sum()
    )
    solution = Solution(
        counts=runs.astype(np.int64),
        bound=bound,
        objective=objective,
        prices=prices,
        backend="lagrangian" if one_type else "highs",
        reason="jobs choose among configurations",
        status="optimal"
        if relative_gap(max(bound, objective), objective) <= RELATIVE_GAP
        else "work_limit",
    )
    kept = audit_types(market, rows, budgets, prices, max(dual - objective, 0.0))
    line = sorted(bids.tolist(), key=lambda row: (not runs[row], -worth[row] / market.gangs[row]))
    leading = {int(ids[row]): float(worth[row] / market.gangs[row]) for row in reversed(line)}
    order = tuple(dict.fromkeys(int(ids[row]) for row in line))
    return Plan(
        placement=placement,
        report=certify(policy, market, rows, solution, kept),
        bids=tuple(market.bids[row] for row in bids),
        memory="" if experience is before else to_json(experience),
        order=order,
        worth=tuple(leading[job_id] for job_id in order),
        offers=market.bids,
    )
