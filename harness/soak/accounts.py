"""The accounts of a service after a soak, compared: leases, quotas, costs, in all their places."""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict

import httpx

from containers.runtime import EventKind
from flows.scheduler.options import DATABASE_URL
from harness.soak.place import Place
from harness.up import PROGRAM, outside
from tasks.record import RoundRecord
from warehouse.analytics.questions import Analytics
from warehouse.inbox.inbox import Inbox
from warehouse.store.reader import Reader

QUOTA = {"gpu_hours": 1e6, "window_hours": 1e6}
"""Terms of each tenant: one window, whose quota no soak uses up, so its use is all GPU time."""

TOLERANCE_SECONDS = 1.0
"""Largest difference between two accounts of a tenant that is none."""

LAUNCHES = (EventKind.STARTED, EventKind.RENEWED, EventKind.RESUMED)


def fold_leases(records: Iterable[RoundRecord]) -> dict[int, float]:
    """GPU-seconds of leases by job, from their events only; it uses no account of the product.

    Leases still held end with the last round. No two jobs may share GPUs.
    """
    held, seconds, clock = dict[int, tuple[float, int]](), defaultdict[int, float](float), 0.0

    def end(job_id: int, at_seconds: float) -> None:
        began, gpus = held.pop(job_id, (at_seconds, 0))
        seconds[job_id] += gpus * (at_seconds - began)

    for record in records:
        clock = record.clock_seconds
        for event in record.finished:
            end(event.job_id, event.at_seconds)
        for event in record.events:
            end(event.job_id, event.at_seconds)
            if event.kind in LAUNCHES:
                held[event.job_id] = event.at_seconds, len(event.gpus)
    for job_id in [*held]:
        end(job_id, clock)
    return dict(seconds)


def compare(place: Place, price: float = 0.0) -> dict[str, float]:
    """GPU-hours of a service, whose API answers, its number of accounts, and how they differ.

    All GPUs have one price of a GPU-hour, or none. `miscounted` are accounts of tenants that are
    missing in a place, or differ from the leases by more than a second of a GPU; the largest
    difference is `differs_s`.
    """
    with Inbox(place.warehouse, place.url) as inbox:
        run = inbox.run
    records = [record for record, _ in Reader(place.warehouse).records(run)]
    tenant_of = {spec.job_id: spec.tenant for record in records for spec in record.arrivals}
    due = dict.fromkeys(tenant_of.values(), 0.0)
    for job_id, seconds in fold_leases(records).items():
        due[tenant_of[job_id]] += seconds
    compared = compare_accounts(due, _accounts(place, run, tenant_of, price))
    return {"gpu_hours": round(sum(due.values()) / 3600.0, 2)} | compared


def compare_accounts(
    due: Mapping[str, float], places: Iterable[tuple[str, Mapping[str, float]]]
) -> dict[str, float]:
    """Compare the GPU-seconds of tenants in each place with what they should be; see `compare`."""
    wrong, worst, count = 0, 0.0, 0
    for where, accounts in places:
        for tenant, seconds in due.items():
            account = accounts.get(tenant)
            if account is not None:
                worst, count = max(worst, abs(account - seconds)), count + 1
            if account is None or abs(account - seconds) > TOLERANCE_SECONDS:
                wrong += 1
                found = "none" if account is None else f"{account} s"
                print(f"miscounted: {where}, {tenant}: {found}, not {seconds}", file=sys.stderr)
    return {"accounts": count, "differs_s": round(worst, 6), "miscounted": wrong}


def _accounts(
    place: Place, run: str, tenant_of: dict[int, str], price: float
) -> Iterator[tuple[str, dict[str, float]]]:
    """Yield each place of accounts: GPU-seconds by tenant; costs over their tariff."""
    units = {"gpu_hours": 3600.0, "used_hours": 3600.0}
    if price:
        units["cost"] = 3600.0 / price

    def rows_of(
        where: str, rows: list[dict[str, object]]
    ) -> Iterator[tuple[str, dict[str, float]]]:
        for name, unit in units.items():
            has = (row for row in rows if row[name] is not None)
            yield f"{where}: {name}", {str(r["tenant"]): float(str(r[name])) * unit for r in has}

    sql = "SELECT tenant, gpu_hours, gpu_hours AS used_hours, cost FROM tenant_summary WHERE run = "
    names, found = Analytics(place.warehouse).query(f"{sql}'{run}'")
    yield from rows_of("SQL", [dict(zip(names, row, strict=True)) for row in found])
    command = [PROGRAM, "tenant", "list", "--json", "--warehouse", str(place.warehouse)]
    env = outside(place.warehouse.parent / "home") | {DATABASE_URL: place.url}
    listed = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    yield from rows_of("command line", [json.loads(line) for line in listed.stdout.splitlines()])
    with place.client() as client:
        yield from rows_of("API", [asdict(row) for row in client.list_tenants()])
        jobs = defaultdict[str, float](float)
        for job_id, tenant in tenant_of.items():
            jobs[tenant] += client.get_job_history(str(job_id)).gpu_hours * 3600.0
        yield "API: jobs", jobs
    user, _, password = place.secret.partition(":")
    url = f"http://127.0.0.1:{place.port}/v1/metrics"
    answer = httpx.get(url, auth=(user, password), timeout=600.0).raise_for_status()
    lines = (line.rpartition(" ") for line in answer.text.splitlines())
    own = [each for each in lines if each[0].startswith("shockwave_tenant_gpu_seconds_total{")]
    yield "metrics", {name.split('"')[1]: float(value) for name, _, value in own}
