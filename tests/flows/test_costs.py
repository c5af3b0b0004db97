"""Costs of tenants and jobs agree: of services, computed from the records, and in SQL."""

from collections import defaultdict
from dataclasses import asdict, replace
from itertools import pairwise
from pathlib import Path

import pytest

from containers.runtime import ContainerEvent, EventKind
from flows.api.commands import ServiceCommands
from flows.runs.costs import GpuCost, Tariff
from flows.web.page.views import load_templates
from predictor.allocation import Demand
from predictor.job import Mode
from solver.inventory import Inventory, Pool
from tasks.commands import CommandKind
from tasks.time_held import TimeHeld
from tests.flows.test_scheduler import FAST, JOB, go
from tests.warehouse.by_hand import round_record
from warehouse.analytics.questions import Analytics
from warehouse.inbox.inbox import Inbox
from warehouse.store.audit import audit
from warehouse.store.reader import Reader

POOLS = (Pool("v100", 4, 2, 36.0), Pool("k80", 2, 1, 3.6))
COSTS = "gpu_hours", "cost", "market_cost"


def test_a_shared_gpu_is_paid_by_half_while_both_are_there() -> None:
    meter = Tariff(Inventory(POOLS), {"v100": 0.5}, 100.0)
    ends = (ContainerEvent(2, EventKind.FINISHED, 280.0, (2, 3)),)
    leases = {0: (0, 1), 1: (2, 3), 2: (2, 3), 3: (4,)}
    record = round_record(3, 300.0, (), finished=ends)
    assert dict(meter.read(TimeHeld(200.0), leases, record)) == {
        0: GpuCost(200.0, 2.0, 1.0),
        1: GpuCost(120.0, pytest.approx(1.2), pytest.approx(0.6)),  # alone for the last 20 s
        2: GpuCost(80.0, pytest.approx(0.8), pytest.approx(0.4)),
        3: GpuCost(100.0, pytest.approx(0.1), None),
    }


def test_accounts_without_a_market_add_none() -> None:
    none, some = GpuCost(1.0, 2.0), GpuCost(3.0, 4.0, 0.0)
    assert none + none == GpuCost(2.0, 4.0)
    assert none + some == some + none == GpuCost(4.0, 6.0, 0.0)


@pytest.mark.slow
def test_a_service_shows_the_costs_of_its_records_and_of_sql(tmp_path: Path) -> None:
    with Inbox(tmp_path) as inbox:
        for number, gpus in enumerate((2, 2, 2, 1)):
            tenant, epochs = "ab"[number % 2], 2 if gpus == 1 else 4000
            job = replace(JOB, epochs=epochs, total_steps=0, mode=Mode.STATIC, tenant=tenant)
            inbox.submit(replace(job, demand=Demand.gang(gpus)))
    go(tmp_path, 2)
    with ServiceCommands(tmp_path) as commands:
        commands.add_node({"price": 7.2, "gpus": 2})
    run = go(tmp_path, 6)
    with Inbox(tmp_path) as inbox:
        inbox.command(CommandKind.CANCEL, 2)
    go(tmp_path, 3)

    header = Reader(tmp_path).original_start(run).header
    records = [record for record, _ in Reader(tmp_path).records(run)]
    by_hand = defaultdict[int, list[float]](lambda: [0.0, 0.0, 0.0])
    dear, paid = 0.0, set[float]()
    for record, after in pairwise(records):
        ends = {event.job_id: event.at_seconds for event in after.finished}
        (price,) = {price.price for price in record.solve.prices} or {0.0}
        for lease in record.leases:
            held = ends.get(lease.job_id, after.clock_seconds) - record.clock_seconds
            hours = len(lease.gpus) * held / 3600.0
            tariff = 7.2 if lease.gpus[0] >= FAST.gpus else 0.0  # of the added node's GPUs
            dear += tariff * hours
            paid.add(price)
            rounds = hours * 3600.0 / header.settings.round_seconds
            for i, more in enumerate((hours, tariff * hours, price * rounds)):
                by_hand[lease.job_id][i] += more
    assert dear > 0.0
    assert len(paid) > 1

    sql = Analytics(tmp_path)
    asked = "SELECT job_id, held_gpu_seconds / 3600, cost, market_cost FROM job_outcomes ORDER BY 1"
    with ServiceCommands(tmp_path) as commands:
        courses = {job.job_id: commands.get_job_history(job.job_id) for job in commands.list_jobs()}
        rows = commands.list_tenants()
    found = {job_id: costs for job_id, *costs in sql.query(asked)[1]}
    assert found.keys() == courses.keys() == by_hand.keys()
    for job_id, course in courses.items():
        shown = [getattr(course, name) for name in COSTS]
        assert shown == pytest.approx(by_hand[job_id])
        assert shown == pytest.approx(found[job_id])
    asked = f"SELECT tenant, {', '.join(COSTS)} FROM tenant_summary ORDER BY tenant"
    of_tenants = sql.query(asked)[1]
    assert [row.tenant for row in rows] == [tenant for tenant, *_ in of_tenants] == ["a", "b"]
    for row, (_, *costs) in zip(rows, of_tenants, strict=True):
        assert [asdict(row)[name] for name in COSTS] == pytest.approx(costs)
    assert audit(tmp_path, run).findings == ()


def test_costs_have_two_digits() -> None:
    amount = load_templates().filters["amount"]
    assert [amount(value) for value in (None, 0.0, 1234.567)] == ["–", "0.00", "1,234.57"]
