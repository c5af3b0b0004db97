"""Runs on clusters of several pools, from the first round to the last."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from containers.runtime import EventKind, Lease, ResumePoint, Terms
from containers.virtual.faithful import FaithfulFactory
from containers.virtual.virtual_cluster import VirtualFactory
from flows.runs.simulation import make_terms
from flows.runs.start import make_start
from flows.scheduler.admission import check_node
from predictor.errors import InputError
from predictor.job import JobProgress, JobSpec
from predictor.rows import from_row, to_row
from predictor.throughput import Profile
from solver.cells.declared import TenantCells, TypeLevel
from solver.inventory import Inventory, Pool
from solver.policies import POLICIES, for_several_pools
from tasks.commands import Command, CommandKind, NewNode
from tasks.record import Parameter, RunHeader, RuntimeKind, Settings, Start
from tests.runs import POOLS, SPEED, as_service, check_sound, make, mixed
from warehouse.workloads.generator import generate_workload

INVENTORY = Inventory(POOLS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "runtime"),
    [
        *((policy, RuntimeKind.VIRTUAL) for policy in for_several_pools()),
        *((policy, RuntimeKind.FAITHFUL) for policy in ("shockwave", "srtf", "gavel", "allox")),
    ],
)
def test_every_round_is_sound_and_its_records_give_the_state(
    policy: str, runtime: RuntimeKind
) -> None:
    made = make(mixed(policy, runtime=runtime))
    check_sound(made)
    kinds = {INVENTORY.allocation(lease.gpus).gpu_type for r in made.records for lease in r.leases}
    assert kinds == set(SPEED)


def test_paces_are_in_seconds_of_the_reference_whatever_a_job_ran_on() -> None:
    made = make(mixed("fifo", runtime=RuntimeKind.FAITHFUL))
    profile, moved = made.header.throughputs, 0
    steady = (belief for belief in made.states[-1].learning.finished if len(belief.observed) == 1)
    for belief in steady:
        for pace in belief.paces:
            rate = profile.rate(belief.spec, pace.batch_size, profile.reference(belief.spec))
            assert pace.seconds == pytest.approx(pace.steps / rate, rel=0.05)
        moved += belief.elsewhere_seconds != 0.0
    assert moved


def test_records_tell_the_run_time_on_what_a_job_holds_or_else_on_its_fastest() -> None:
    made, leases = make(mixed()), dict[int, tuple[int, ...]]()
    profile, specs = made.header.throughputs, {spec.job_id: spec for spec in made.specs}
    elsewhere = 0
    for record in made.records:
        for event in record.finished:
            leases.pop(event.job_id, None)
        for estimate in record.estimates:
            gpus, spec = leases.get(estimate.job_id, ()), specs[estimate.job_id]
            if gpus:
                assert estimate.allocation == INVENTORY.allocation(gpus)
                elsewhere += estimate.allocation.gpu_type != "v100"
            else:
                assert estimate.allocation.gpu_type == profile.reference(spec).gpu_type
        leases = {lease.job_id: lease.gpus for lease in record.leases}
    assert elsewhere


def of_any_type(start: Start) -> JobSpec:
    """A job of one GPU whose rates on the types are those of `SPEED`."""
    return next(
        spec
        for spec in start.workload.specs
        if spec.model not in ("autoencoder", "conv-large") and spec.demand.least == 1
    )


def played(
    place: type[VirtualFactory] | type[FaithfulFactory],
    terms: Terms,
    start: Start,
    gpus: Iterable[int],
) -> Iterator[tuple[EventKind, JobProgress]]:
    """The lease of a job on each of these GPUs in turn, for a round, and its progress there."""
    spec = of_any_type(start)
    runtime = place(start.workload.truths).open(terms, ResumePoint(jobs=(spec,)))
    for number, gpu in enumerate(gpus):
        (event,) = runtime.launch(number, [Lease(spec.job_id, (gpu,))])
        runtime.advance(None)
        (entry,) = runtime.observe().progress
        yield event.kind, entry


@pytest.mark.parametrize("place", [VirtualFactory, FaithfulFactory])
def test_a_move_to_another_pool_is_a_restart_and_changes_the_rate(
    place: type[VirtualFactory] | type[FaithfulFactory],
) -> None:
    start = mixed()
    spec = of_any_type(start)
    asked = replace(make_terms(start.header), restart_seconds=100.0)
    kinds, progress = map(list, zip(*played(place, asked, start, (6, 7, 0, 0)), strict=True))
    within = EventKind.RENEWED if place is VirtualFactory else EventKind.RESUMED
    assert kinds == [EventKind.STARTED, within, EventKind.RESUMED, EventKind.RENEWED]
    assert progress[2].seconds == pytest.approx(500.0, abs=1.0)
    assert progress[3].seconds == pytest.approx(600.0, abs=1.0)
    rate = start.header.throughputs.rate(spec, spec.batch_size, INVENTORY.allocation((6,)))
    done = spec.total_steps - progress[0].steps_left
    assert done == pytest.approx(rate * progress[0].seconds, abs=2)
    assert progress[3].batch_size == spec.batch_size
    faster = (progress[2].steps_left - progress[3].steps_left) / progress[3].seconds
    assert faster == pytest.approx(4.0 * rate, rel=0.01)


def test_a_new_run_has_switches_on_or_off() -> None:
    with pytest.raises(InputError, match=r"parameters\.packed: 0\.5 is neither 0 nor 1"):
        mixed("gavel", parameters=(Parameter("packed", 0.5),))


RESTARTS = {("v100", 1): 10.0, ("v100", 2): 5.0, ("k80", 1): 40.0}
"""What was measured; nothing of p100."""


def measured(*, restart_seconds: float = 20.0, pools: tuple[Pool, ...] = POOLS) -> Start:
    """A run whose profile has restarts."""
    start = mixed(pools=pools)
    profile = replace(start.workload.profile, restarts=RESTARTS)
    settings = replace(start.header.settings, restart_seconds=restart_seconds)
    return make_start(replace(start.workload, profile=profile), settings)


@pytest.mark.parametrize("place", [VirtualFactory, FaithfulFactory])
def test_a_start_takes_as_long_as_it_does_where_the_job_goes(
    place: type[VirtualFactory] | type[FaithfulFactory],
) -> None:
    start = measured()
    firsts = {kind: INVENTORY.gpus_in(n)[0] for kind, (n,) in INVENTORY.pools_of.items()}
    gpus = [firsts[kind] for kind in ("v100", "k80", "v100", "p100", "p100")]
    seen = played(place, make_terms(start.header), start, gpus)
    trained = [600.0 - entry.seconds for _, entry in seen]
    first = 0.0 if place is VirtualFactory else 40.0  # free by the published rules
    assert trained == pytest.approx([first, 160.0, 40.0, 20.0, 0.0], abs=2.0)


@pytest.mark.parametrize("place", [VirtualFactory, FaithfulFactory])
def test_a_restart_longer_than_a_round_goes_on_in_the_next_ones(
    place: type[VirtualFactory] | type[FaithfulFactory],
) -> None:
    start = measured(restart_seconds=380.0)
    (v100,), (k80,) = (INVENTORY.gpus_in(INVENTORY.pools_of[k][0])[:1] for k in ("v100", "k80"))
    gpus = v100, v100, k80, k80, v100, v100, *[k80] * 7
    seen = [entry for _, entry in played(place, make_terms(start.header), start, gpus)]
    trained, left = [entry.run_seconds for entry in seen], [entry.steps_left for entry in seen]
    took = {"v100": 760.0, "k80": 3040.0}
    rounds = np.diff(trained, prepend=0.0)
    # From the third round on: no trace of a restart that a move cut short.
    assert rounds[2:4] == pytest.approx([0.0, 0.0])
    assert rounds[4:6] == pytest.approx([0.0, 1200.0 - took["v100"]], abs=2.0)
    assert rounds[6:] == pytest.approx([0.0] * 5 + [3600.0 - took["k80"], 600.0], abs=2.0)
    assert (np.diff(left)[rounds[1:] == 0.0] == 0).all()


def test_the_header_has_restarts_by_allocation_where_the_least_is_what_is_asked_for() -> None:
    start = measured()
    took = start.header.throughputs.restarts
    assert {kind for kind, _ in took} == {"v100", "k80"}
    assert (took["v100", 1], took["v100", 2], took["v100", 4]) == (40.0, 20.0, 20.0)
    assert took["k80", 1] == took["k80", 4] == 160.0
    assert from_row(RunHeader, to_row(start.header)) == start.header
    # A fork of it, or a run with other settings, has them in the same proportions.
    again = replace(start.header.settings, restart_seconds=5.0)
    cheaper = make_start(replace(start.workload, profile=start.header.throughputs), again)
    assert {
        key: 4.0 * seconds for key, seconds in cheaper.header.throughputs.restarts.items()
    } == took
    assert measured(restart_seconds=0.0).header.throughputs.restarts == {}


def test_on_one_type_a_restart_takes_what_is_asked_for_whatever_was_measured() -> None:
    pools = (Pool("v100", 8),)
    with_them, without = measured(pools=pools).header, mixed(pools=pools).header
    assert with_them == without


def test_an_isolated_run_time_is_that_at_the_mean_speed_of_the_gpus() -> None:
    start = mixed()
    profile = start.header.throughputs
    mean = (2 * 1.0 + 4 * 0.5 + 4 * 0.25) / 10
    for spec, truth in zip(start.workload.specs, start.workload.truths, strict=True):
        (alone,) = {
            sum(
                regime.epochs
                * spec.samples_per_epoch
                / regime.batch_size
                / profile.rate(spec, regime.batch_size, profile.reference(spec))
                for regime in truth.profiled
            )
        }
        expected = {"autoencoder": 1 / (0.2 * 0.25 + 0.4 * 0.5 + 0.4), "conv-large": 1 / 0.4}
        slower = expected.get(spec.model, 1 / mean)
        assert truth.isolated_seconds == pytest.approx(alone * slower, rel=0.02)


def test_one_pool_of_a_table_of_several_types_is_like_a_table_of_that_type() -> None:
    two = mixed("shockwave", pools=(Pool("v100", 8),))
    workload = replace(two.workload, profile=Profile(two.header.throughputs.rates))
    single = make_start(workload, two.header.settings)
    assert single.digest == two.digest
    assert two.header.throughputs.gpu_types == ("v100",)


@pytest.mark.parametrize("policy", sorted(POLICIES.keys() - set(for_several_pools())))
def test_policies_for_one_pool_say_so(policy: str) -> None:
    with pytest.raises(InputError, match=f"policy: {policy} schedules one pool of GPUs; give one"):
        mixed(policy)


def test_a_policy_that_divides_by_prices_has_one_of_each_pool_and_of_each_node_added() -> None:
    costed = (Parameter("costed", 1.0),)
    with pytest.raises(InputError, match="GPUs of type 'p100' have no price"):
        mixed("mst", pools=(Pool("v100", 4, price=0.7), Pool("p100", 4)), parameters=costed)
    header = mixed("mst", pools=(Pool("v100", 4, price=0.7),), parameters=costed).header
    inventory = header.settings.inventory
    check_node(NewNode("", "v100", 4, 0.1), header, inventory)
    with pytest.raises(InputError, match="GPUs of type 'v100' have no price"):
        check_node(NewNode("", "v100", 4), header, inventory)


def test_a_pool_of_a_type_that_the_profile_lacks_is_refused() -> None:
    with pytest.raises(InputError, match="the profile has no GPUs of type 'a100'; it has k80, p1"):
        mixed(pools=(*POOLS, Pool("a100", 4)))


def test_cells_on_several_types_say_of_which() -> None:
    start, cells = mixed(), (TenantCells("default", "", "node", 1),)
    settings, kinds = start.header.settings, ", ".join(pool.gpu_type for pool in POOLS)
    for field, asked in (
        ("cells", replace(settings, cells=cells)),
        ("levels", replace(settings, levels=(TypeLevel("", "node", 1),))),
    ):
        said = f"{field}: a GPU type is missing, .*; name one of its types: {kinds}"
        with pytest.raises(InputError, match=said):
            make_start(start.workload, asked)
    typed = replace(settings, pools=(Pool("v100", 4),), cells=cells)
    (promised,) = make_start(start.workload, typed).header.settings.cells
    assert promised.gpu_type == "v100"  # the only one of the cluster, not the first of the table


def test_a_job_that_fits_no_pool_is_refused() -> None:
    workload = generate_workload(9, rng=np.random.default_rng(1))
    rates = {
        (m, b, kind, g): r
        for (m, b, _, g), r in workload.profile.rates.items()
        for kind in ("v100", "k80")
    }
    settings = Settings("fifo", (Pool("v100", 1), Pool("k80", 1)))
    with pytest.raises(
        InputError, match="all of one type that it can run on, but the cluster has 1 v100, 1 k80"
    ):
        make_start(replace(workload, profile=Profile(rates)), settings)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "last"),
    [
        *((policy, "k80") for policy in for_several_pools()),  # on which not all jobs can run
        *((policy, "v100") for policy in ("shockwave", "srtf", "gavel", "allox")),
    ],
)
def test_all_types_but_one_go_out_of_service_and_return(policy: str, last: str) -> None:
    start = mixed(policy, runtime=RuntimeKind.FAITHFUL)
    out = [node for node in range(INVENTORY.nodes) if gpu_type(node) != last]
    given = [
        Command(0, kind, node, at)
        for kind, at in ((CommandKind.DRAIN, 2_000.0), (CommandKind.UNCORDON, 8_000.0))
        for node in out
    ]
    made = make(as_service(start.workload, start.header.settings, given))
    check_sound(made)
    models = {spec.job_id: spec.model for spec in made.specs}
    alone = [record for record in made.records if len(record.solve.drained) == len(out)]
    leases = [lease for record in alone for lease in record.leases]
    assert {INVENTORY.allocation(lease.gpus).gpu_type for lease in leases} == {last}
    assert last != "k80" or "conv-large" not in {models[lease.job_id] for lease in leases}


def gpu_type(node: int) -> str:
    return INVENTORY.allocation(INVENTORY.gpus_of(node)).gpu_type
