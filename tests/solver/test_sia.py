"""Sia chooses configurations by powers of normalised goodputs."""

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from predictor.allocation import Allocation
from solver.backends.configurations import choose_configurations
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
    assert worth(choose_configurations(table, capacities)) == pytest.approx(best, abs=1e-6)


def test_configurations_are_powers_of_two_on_a_node_and_whole_nodes(tmp_path: Path) -> None:
    made = make(start(tmp_path, *FOUR, policy="sia"))
    counts = {len(lease.gpus) for record in made.records for lease in record.leases}
    assert counts <= {1, 2, 4}
    assert 4 in counts
    ends = [event for record in made.records for event in record.finished]
    assert sorted(event.job_id for event in ends) == [0, 1, 2, 3]


def test_a_gang_keeps_its_size() -> None:
    jobs = job(0, 9, gang=3), job(1, 9, gang=2), job(2, 9, gang=1)
    assert turns("sia", situate(*jobs, gpus=4), 1) == [[0, 2]]  # two jobs rather than one


def test_jobs_run_on_several_types() -> None:
    made = make(mixed("sia", jobs=6))
    inventory = made.header.settings.inventory
    leases = [lease for record in made.records for lease in record.leases]
    kinds = {inventory.allocation(lease.gpus).gpu_type for lease in leases}
    assert len(kinds) > 1
