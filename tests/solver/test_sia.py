"""Sia chooses configurations by powers of normalised goodputs."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation
from predictor.throughput import UNTYPED
from solver.backends.configurations import choose_configurations
from solver.policies.sia import Sia, SiaMemory
from tests.runs import make, mixed
from tests.solver.test_policies import job
from tests.solver.test_pollux import FOUR, start
from tests.solver.test_tiresias import start as situate
from tests.solver.test_tiresias import turns
from tests.strategies import examples

CHOICES = [Allocation("a", 1), Allocation("a", 2), Allocation("b", 1), Allocation("b", 4)]

values = st.dictionaries(st.sampled_from(CHOICES), st.floats(-1.0, 1.0), max_size=4)


@given(st.lists(values, min_size=1, max_size=4))
@examples(40)
def test_chosen_configurations_have_the_greatest_value(
    table: list[dict[Allocation, float]],
) -> None:
    capacities = {"a": 3, "b": 4}

    def worth(chosen: list[Allocation | None]) -> float:
        used = {kind: sum(c.gpus for c in chosen if c and c.gpu_type == kind) for kind in "ab"}
        if any(used[kind] > capacities[kind] for kind in used):
            return -1.0
        return sum(row[c] for row, c in zip(table, chosen, strict=True) if c)

    best = max(worth(list(every)) for every in product(*([None, *row] for row in table)))
    chosen, bound = choose_configurations(table, capacities)
    assert worth(chosen) == pytest.approx(best, abs=1e-6)
    assert bound >= best - 1e-6


def test_configurations_are_powers_of_two_on_a_node_and_whole_nodes(tmp_path: Path) -> None:
    made = make(start(tmp_path, *FOUR, policy="sia"))
    counts = {len(lease.gpus) for record in made.records for lease in record.leases}
    assert counts <= {1, 2, 4}
    assert 4 in counts
    ends = [event for record in made.records for event in record.finished]
    assert sorted(event.job_id for event in ends) == [0, 1, 2, 3]


def test_what_a_configuration_saves_by_hand() -> None:
    """A gang of 4 has goodput 4 over one of a GPU: 1.1 - 4 ** -0.5, as published."""
    gang, sizes = job(0, 9, gang=4), {UNTYPED: 4}
    memory, now = SiaMemory({0: 3}), replace(situate(gang), clock_seconds=1_000.0)
    (found,) = gang.menu
    assert Sia()._value(now, memory, gang, sizes) == {found: pytest.approx(1.1 - 0.5)}
    moved = replace(gang, held=Allocation(UNTYPED, 2))
    costly = replace(now, restart_seconds=100.0)
    # Two restarts in 1,000 s: 4 · (1,000 - 2 · 100) / (1,000 + 100) is 2.91, whose power is 0.59.
    assert Sia()._value(costly, memory, moved, sizes) == {found: pytest.approx(1.1 - 0.59)}
    assert Sia()._value(costly, memory, gang, sizes) == {found: pytest.approx(1.1 - 0.5)}


def test_plans_have_the_bound_of_their_program() -> None:
    report = Sia().plan(situate(job(0, 9, gang=2), job(1, 9), gpus=2)).report
    assert (report.status, report.backend) == ("optimal", "highs")
    assert report.objective == pytest.approx(report.bound)
    assert report.objective > 0.0


def test_a_gang_keeps_its_size() -> None:
    jobs = job(0, 9, gang=3), job(1, 9, gang=2), job(2, 9, gang=1)
    assert turns("sia", situate(*jobs, gpus=4), 1) == [[0, 2]]  # two jobs rather than one


def test_jobs_run_on_several_types() -> None:
    made = make(mixed("sia", jobs=6))
    inventory = made.header.settings.inventory
    leases = [lease for record in made.records for lease in record.leases]
    kinds = {inventory.allocation(lease.gpus).gpu_type for lease in leases}
    assert len(kinds) > 1
