"""Why a job runs or waits on GPU types, on several nodes and on shared GPUs."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from flows.explain.facts import GangSpread
from flows.explain.why import why
from flows.explain.worths import GpuHolder, Worths
from predictor.allocation import Allocation
from predictor.throughput import Profile
from solver.inventory import Inventory, Pool
from solver.market import Bid
from solver.plan import Plan, SolveReport
from tasks.record import Parameter
from tasks.rollouts import SIMULATIONS
from tests.runs import POOLS, SPEED, make, mixed, write
from tests.solver.test_pollux import FOUR
from tests.solver.test_pollux import start as elastic_start
from tests.tasks import test_spread_gangs as by_nodes


@pytest.mark.slow
def test_types_are_named_with_the_speed_that_they_would_give(tmp_path: Path) -> None:
    made = make(mixed("fifo", jobs=10))
    run, inventory = write(tmp_path, made.start, made.rounds), made.header.settings.inventory
    specs = {spec.job_id: spec for spec in made.specs}
    number = next(
        record.round
        for record in made.records
        if {inventory.allocation(lease.gpus).gpu_type for lease in record.leases} == set(SPEED)
        and len(made.states[record.round + 1].beliefs) > len(record.leases)
    )
    leases = {lease.job_id: lease.gpus for lease in made.records[number].leases}
    for job_id in made.states[number + 1].beliefs:
        answer = why(job_id, tmp_path, run, number)
        spec = specs[job_id]
        slow = SPEED if spec.model != "autoencoder" else {k: 0.25 / v for k, v in SPEED.items()}
        kinds = sorted(SPEED, key=lambda kind: -slow[kind])
        kinds = [k for k in kinds if (spec.model, k) != ("conv-large", "k80")]
        assert [speed.gpu_type for speed in answer.line.speeds] == kinds
        assert [speed.speed for speed in answer.line.speeds] == pytest.approx(
            [slow[k] for k in kinds]
        )
        if job_id in leases:
            held = inventory.allocation(leases[job_id]).gpu_type
            assert answer.holding.gpu_type == held
            said = "" if held == kinds[0] else f", at {slow[held]:.2f} of its speed on {kinds[0]}"
            assert f" ({held}{said})." in str(answer)
        else:
            rest = ", ".join(
                f"{kind} would give {slow[kind]:.2f} of its speed there" for kind in kinds[1:]
            )
            assert f"It waits for {kinds[0]}: {rest}." in str(answer)
            assert 0 <= answer.supply.free < answer.job.scale_factor * len(kinds)


@pytest.mark.slow
def test_a_shared_job_is_shown_with_its_partner_and_speed(tmp_path: Path) -> None:
    made = make(mixed("antman", jobs=14, together=0.8, opportunistic=True))
    run, number = write(tmp_path, made.start, made.rounds), 3
    record = made.records[number]
    pair = record.pairs[0]
    answers = [why(job_id, tmp_path, run, number) for job_id in pair]
    assert [answer.holding.shares.job_id for answer in answers] == [*reversed(pair)]
    speeds = {answer.job.job_id % 2: answer.holding.shares.speed for answer in answers}
    assert speeds == pytest.approx({0: 1.0, 1: 0.6})  # of the sum of 1.6, the guaranteed job has 1
    assert f"It shares them with job {pair[1]}, at " in str(answers[0])
    held = {gpu for lease in record.leases for gpu in lease.gpus}
    assert answers[0].supply.busy == len(held) < sum(len(lease.gpus) for lease in record.leases)


@pytest.mark.slow
def test_packing_policies_show_places_in_line_and_free_gpus_by_type(
    tmp_path: Path,
) -> None:
    packed = (Parameter("packed", 1.0),)
    made = make(mixed("gandiva", jobs=24, together=0.8, parameters=packed))
    run, inventory = write(tmp_path, made.start, made.rounds), made.header.settings.inventory
    for record, state in zip(made.records, made.states[1:], strict=True):
        leases = {lease.job_id: lease.gpus for lease in record.leases}
        waiting = [job for job in state.beliefs if job not in leases]
        taken = {gpu for gpus in leases.values() for gpu in gpus}
        if record.pairs and waiting:
            break
    answer = why(waiting[0], tmp_path, run, record.round)
    assert answer.line.place is not None
    assert len(leases) < answer.line.place <= answer.line.length == len(state.beliefs)
    held = Counter(inventory.allocation([gpu]).gpu_type for gpu in taken)
    idle = {kind: gpus - held[kind] for kind, gpus in inventory.capacities.items()}
    assert dict(answer.supply.free_by_type) == {
        speed.gpu_type: idle[speed.gpu_type] for speed in answer.line.speeds
    }
    assert " left for it. " in str(answer)
    assert "no place in line" not in str(answer)


def test_a_spread_gang_is_shown_with_its_nodes_and_slowdown(tmp_path: Path) -> None:
    # The first ends at 100 s; the free GPUs are then on two nodes, and the last has come.
    job = by_nodes.job
    first = job(0, 1, 80), job(1, 1, 1_000), job(2, 1, 1_000)
    made = make(by_nodes.start(*first, job(3, 2, 20, 50.0)))
    run = write(tmp_path, made.start, made.rounds)
    (lease, number), *_ = (
        (lease, record.round)
        for record in made.records
        for lease in record.leases
        if lease.job_id == 3
    )
    answer = why(3, tmp_path, run, number)
    assert answer.holding.gpus == lease.gpus
    assert answer.holding.spread == GangSpread(nodes=2, fewest_nodes=1, speed=0.4)
    said = "It is spread over 2 nodes where 1 node would do, at 0.40 of its speed on 1."
    assert said in str(answer)
    played: list[tuple[int, int]] = []
    assert why(1, tmp_path, run, number, lambda *done: played.append(done)).holding.spread is None
    assert played == [(play, SIMULATIONS) for play in range(SIMULATIONS)]


def test_a_gang_that_cannot_be_spread_waits_for_nodes_where_gpus_enough_are_idle(
    tmp_path: Path,
) -> None:
    """Two gangs of two leave one of three GPUs idle on each node, as many as the third needs."""
    pools, gangs = (Pool("v100", 6, 3),), [by_nodes.job(n, 2, 1_500) for n in range(3)]
    never = replace(by_nodes.PROFILE, by_nodes={2: Profile({by_nodes.FAST: 0.0})})
    made = make(by_nodes.start(*gangs, profile=never, pools=pools))
    run = write(tmp_path, made.start, made.rounds)
    waits, runs = why(2, tmp_path, run, 0), why(1, tmp_path, run, 0)
    assert (waits.obstacles.scattered, waits.supply.free) == (True, 2)
    assert not runs.obstacles.scattered
    said = "It needs 2 GPUs on as few nodes as can hold them; 2 were left when its turn came"
    assert f"{said}, but on too many nodes. 4 of 6 are held" in str(waits)
    single = by_nodes.job(3, 1, 9_000), by_nodes.job(4, 1, 9_000)
    made = make(by_nodes.start(*gangs, *single, profile=never, pools=pools))
    run = write(tmp_path / "full", made.start, made.rounds)
    assert [why(2, tmp_path / "full", run, 0).obstacles.scattered, len(made.records[0].leases)] == [
        True,
        4,
    ]
    small = make(by_nodes.start(*gangs, profile=never, pools=(Pool("v100", 4, 2),)))
    run = write(tmp_path / "small", small.start, small.rounds)
    waits = why(2, tmp_path / "small", run, 0)
    assert (waits.obstacles.scattered, " nodes" in str(waits)) == (False, False)


def bid(job_id: int, gpus: int, **utilities: float) -> list[Bid]:
    """A job's utilities of the round, by GPU type."""
    return [Bid(job_id, Allocation(kind, gpus), 1.0, worth) for kind, worth in utilities.items()]


def test_worths_are_those_of_a_gpu_and_compared_on_one_type() -> None:
    """Jobs 0 and 1 hold two V100s and two P100s, 3 a K80; 2 waits, 4 keeps a K80 without a bid."""
    bids = (
        *bid(0, 2, v100=2.0, p100=0.8),
        *bid(1, 2, v100=3.0, p100=1.2),
        *bid(2, 1, v100=0.75, p100=0.5, k80=0.125),
        *bid(3, 1, p100=0.75, k80=0.25),
    )
    worths = Worths(
        Plan(
            {0: (0, 1), 1: (2, 3), 3: (6,), 4: (7,)},
            SolveReport("shockwave"),
            bids=bids,
            order=(1, 0, 2, 3),
            worth=(1.5, 1.0, 0.75, 0.75),
        ),
        Inventory(POOLS),
    )
    assert [worths.type_of(job) for job in range(5)] == ["v100", "p100", "v100", "k80", None]
    assert [worths.on(2, kind) for kind in SPEED] == [0.75, 0.5, 0.125]
    assert [worths.least(kind) for kind in SPEED] == pytest.approx([1.0, 0.6, 0.25])
    assert list(worths.holders()) == [
        GpuHolder(0, 2, 1.0, 2, "v100"),
        GpuHolder(1, 2, 0.6, 1, "p100"),
        GpuHolder(3, 1, 0.25, 4, "k80"),
        GpuHolder(4, 1, None, None, "k80"),
    ]


@pytest.mark.slow
def test_a_market_says_what_each_type_is_worth_against_its_price(tmp_path: Path) -> None:
    made = make(mixed("shockwave", jobs=16))
    run = write(tmp_path, made.start, made.rounds)
    *_, (record, waiting) = (  # the last, after which the least is left to be played
        (record, job_id)
        for record, state in zip(made.records, made.states[1:], strict=True)
        for job_id in state.beliefs
        if job_id not in {lease.job_id for lease in record.leases}
        and sum(bid.job_id == job_id for bid in record.bids) > 1
    )
    answer = why(waiting, tmp_path, run, record.round)
    prices = {price.gpu_type: price.price for price in record.solve.prices}
    worth = {speed.gpu_type: speed.worth for speed in answer.line.speeds if speed.worth is not None}
    assert len(worth) == len(answer.line.speeds)
    inventory = made.header.settings.inventory
    alone = Plan({}, record.solve, bids=record.bids, order=(waiting,), worth=(0.0,))
    recorded = Worths(alone, inventory)
    assert worth == {kind: recorded.on(waiting, kind) for kind in worth}
    best = max(worth, key=lambda kind: worth[kind])
    assert (answer.line.worth_type, answer.line.worth) == (best, worth[best])
    held = {lease.job_id: inventory.allocation(lease.gpus).gpu_type for lease in record.leases}
    assert {holder.job_id: holder.gpu_type for holder in answer.line.holders} == held
    there = [holder.worth for holder in answer.line.holders if holder.gpu_type == best]
    assert answer.line.cutoff == min((worth for worth in there if worth is not None), default=None)
    assert f"a GPU of this round on {best} is worth {answer.line.worth:.4g} to it" in str(answer)
    for other in answer.line.speeds[1:]:
        word = "less than" if worth[other.gpu_type] < prices[other.gpu_type] else "at least"
        gives = f"{other.gpu_type} would give {other.speed:.2f} of its speed there"
        assert f"{gives}, worth {word} its price" in str(answer)
    shown_prices = ", ".join(
        f"{speed.price:.4g} on {speed.gpu_type}" for speed in answer.line.speeds
    )
    assert f"The market prices one more GPU-round at {shown_prices}." in str(answer)


@pytest.mark.slow
def test_an_elastic_job_is_told_why_it_gets_no_more_gpus(tmp_path: Path) -> None:
    made = make(elastic_start(tmp_path, *FOUR, policy="shockwave"))
    run, said = write(tmp_path, made.start, made.rounds), 0
    for record in made.records:
        for lease in record.leases:
            answer = why(lease.job_id, tmp_path, run, record.round)
            wider, gpus = answer.line.wider, len(lease.gpus)
            if wider is None:
                continue
            said += 1
            (price,) = record.solve.prices
            assert wider.gpus == 2 * gpus  # powers of two, or whole nodes of two GPUs
            assert wider.price == pytest.approx(price.price * gpus)
            assert f"It runs on {gpus}, not {wider.gpus}: {gpus} more are worth " in str(answer)
            idle = 4 - sum(len(other.gpus) for other in record.leases)
            assert idle < gpus or wider.gain <= 1e-6  # else the market would not be optimal
    assert said
