"""A cordoned node: jobs on it go on, and no job starts there."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.policies import POLICIES
from tasks.commands import Command, CommandKind
from tasks.record import RuntimeKind, Settings, Start, make_pool
from tests.runs import Made, as_service, check_sound, check_stored, make
from tests.strategies import examples
from tests.tasks.test_eligibility import JOB, start
from tests.tasks.test_tenancy import LONG

CORDON, UNCORDON, DRAIN = CommandKind.CORDON, CommandKind.UNCORDON, CommandKind.DRAIN


def service(path: Path, text: str, *given: tuple[CommandKind, int, float], policy: str) -> Start:
    """A service on four nodes of two GPUs, whose jobs come at once and before the commands."""
    return serve(path, text, *(Command(0, *order) for order in given), policy=policy)


def serve(path: Path, text: str, *commands: Command, policy: str) -> Start:
    settings = Settings(policy, make_pool(8, 2), round_seconds=120.0, runtime=RuntimeKind.FAITHFUL)
    return as_service(start(path, text).workload, settings, commands)


def held(made: Made) -> list[dict[int, tuple[int, ...]]]:
    return [{lease.job_id: lease.gpus for lease in record.leases} for record in made.records]


SINGLES = f'[[jobs]]\n{JOB}array = "0-11"\n'


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["shockwave", "fifo", "gavel", "tiresias-las"])
def test_who_runs_goes_on_and_no_job_starts(tmp_path: Path, policy: str) -> None:
    orders = (CORDON, 1, 100.0), (UNCORDON, 1, 3_000.0)
    made = make(service(tmp_path, SINGLES, *orders, policy=policy))
    rounds = held(made)
    there = {job: gpus for job, gpus in rounds[0].items() if not {2, 3}.isdisjoint(gpus)}
    assert len(there) == 2
    for number, record in enumerate(made.records[1:], start=1):
        if record.clock_seconds >= 3_000.0:
            break
        for job, gpus in rounds[number].items():
            assert {2, 3}.isdisjoint(gpus) or there[job] == gpus
    for job in there:  # none of them is preempted
        holds = [job in now for now in rounds]
        assert holds == sorted(holds, reverse=True)
    check_sound(made)
    check_stored(tmp_path, made)


def test_a_node_is_used_again_once_it_is_uncordoned(tmp_path: Path) -> None:
    text = f"[[jobs]]\n{LONG}scale_factor = 8\n"
    orders = (CORDON, 0, 0.0), (UNCORDON, 0, 700.0)
    made = make(service(tmp_path, text, *orders, policy="shockwave"))
    rounds = held(made)
    begins = next(number for number, now in enumerate(rounds) if now)
    assert made.records[begins].clock_seconds >= 700.0
    assert all(now == {1: (0, 1, 2, 3, 4, 5, 6, 7)} for now in rounds[begins:-1])


orders = st.lists(
    st.tuples(st.sampled_from([CORDON, UNCORDON, DRAIN]), st.integers(0, 3), st.floats(1.0, 1e4)),
    max_size=6,
)
MIXED = f"""
[[jobs]]
{JOB}array = "0-3"
scale_factor = 2
[[jobs]]
{JOB.replace("checkpointing", "opaque")}array = "0-3"
[[jobs]]
{LONG}scale_factor = 3
"""


@examples(12)
@given(orders, st.sampled_from(sorted({"shockwave", "fifo", "srtf", "themis"} & {*POLICIES})))
def test_whatever_is_ordered_the_invariants_hold(
    tmp_path_factory: pytest.TempPathFactory,
    given_orders: list[tuple[CommandKind, int, float]],
    policy: str,
) -> None:
    undone = [(UNCORDON, node, 12_000.0 + node) for node in range(4)]
    made_of = [*sorted(given_orders, key=lambda order: order[2]), *undone]
    check_sound(make(service(tmp_path_factory.mktemp("cordon"), MIXED, *made_of, policy=policy)))
