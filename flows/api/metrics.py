"""Metrics of a service in the text format of Prometheus."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from tasks.record import Timings

if TYPE_CHECKING:
    from flows.api.history import ServiceHistory
    from flows.api.job_history import TenantRow
    from flows.api.queries import ServiceQueries
    from flows.api.rows import NodeRow

QUANTILES = (0.5, 0.9, 1.0)
"""Exported quantiles of ρ; the last is the worst. A convention."""


def export_metrics(
    service: "ServiceQueries",
    now: float | None = None,
    sees: Callable[[str], bool] = lambda tenant: True,
) -> bytes:
    """Export the metrics of a service; no metric names a job, or a tenant that `sees` hides.

    `now` is in seconds since the epoch.

    Raises:
        ShockwaveError: The records are damaged, or the inbox does not answer.
    """
    registry = CollectorRegistry()
    registry.register(
        _Collector(
            [
                *_collect_service(service, time.time() if now is None else now),
                *_collect_tenants(row for row in service.list_tenants() if sees(row.tenant)),
                *_collect_nodes(service.list_nodes()),
            ]
        )
    )
    return generate_latest(registry)


class _Collector:
    """A Prometheus collector of metrics that are computed already."""

    def __init__(self, metrics: Sequence[Metric]) -> None:
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from self._metrics


def _collect_service(service: "ServiceQueries", now: float) -> Iterator[Metric]:
    history, status = service.read_history(), service.get_status()

    def gauge(name: str, about: str, value: float) -> Metric:
        return GaugeMetricFamily(f"shockwave_{name}", about, value=value)

    def counter(name: str, about: str, value: float) -> Metric:
        return CounterMetricFamily(f"shockwave_{name}", about, value=value)

    yield counter("rounds", "Rounds recorded.", status.rounds)
    yield counter("late_rounds", "Rounds that began a tenth of a round or more late.", status.late)
    yield gauge("clock_seconds", "The run's clock at the last round.", status.clock_s)
    yield gauge("gpus", "GPUs of the cluster.", status.gpus)
    yield gauge("busy_gpus", "GPUs that are held.", status.busy_gpus)
    yield gauge("drained_nodes", "Nodes that are out of service.", len(status.drained))
    jobs = GaugeMetricFamily("shockwave_jobs", "Active jobs.", labels=["status"])
    for name in ("running", "waiting", "held"):
        jobs.add_metric([name], getattr(status, name))
    yield jobs
    yield counter("jobs_ended", "Jobs that ended.", status.ended)
    held = sum(account.gpu_seconds for account in history.position.accounts.values())
    yield counter("gpu_seconds", "GPU time that jobs held.", held)
    ends = CounterMetricFamily(
        "shockwave_container_ends", "Ends of containers, by kind of event.", labels=["kind"]
    )
    for kind, count in history.position.ends.items():
        ends.add_metric([kind], count)
    yield ends
    yield counter("inbox_entries", "Entries accepted.", status.inbox)
    yield gauge("inbox_pending", "Entries that no round has taken in yet.", status.pending)
    yield gauge("inbox_lag_seconds", "Age of the oldest of these.", service.measure_lag(now))
    yield from _collect_last_round(service, history)


def _collect_tenants(rows: "Iterable[TenantRow]") -> Iterator[Metric]:
    labels = ["tenant"]
    gpus = GaugeMetricFamily("shockwave_tenant_gpus", "GPUs that a tenant holds.", labels=labels)
    jobs = GaugeMetricFamily("shockwave_tenant_jobs", "A tenant's active jobs.", labels=labels)
    held = CounterMetricFamily(
        "shockwave_tenant_gpu_seconds", "GPU time that a tenant's jobs held.", labels=labels
    )
    for row in rows:
        gpus.add_metric([row.tenant], row.gpus)
        jobs.add_metric([row.tenant], row.jobs)
        held.add_metric([row.tenant], row.gpu_hours * 3600.0)
    yield from (gpus, jobs, held)


def _collect_nodes(rows: "Iterable[NodeRow]") -> Iterator[Metric]:
    labels = ["node", "gpu_type"]
    gpus = GaugeMetricFamily(
        "shockwave_node_gpus", "GPUs of a node; 0 while it is out of service.", labels=labels
    )
    busy = GaugeMetricFamily("shockwave_node_busy_gpus", "Held GPUs of a node.", labels=labels)
    for row in rows:
        node = [row.name or str(row.node), row.gpu_type]
        gpus.add_metric(node, 0 if row.drained else row.gpus)
        busy.add_metric(node, len(row.held_gpus))
    yield from (gpus, busy)


def _collect_last_round(service: "ServiceQueries", history: "ServiceHistory") -> Iterator[Metric]:
    if not history.last:
        return
    yield GaugeMetricFamily(
        "shockwave_solver_gap", "Gap of the last plan to its bound.", value=history.last.solve.gap
    )
    steps = GaugeMetricFamily(
        "shockwave_step_seconds", "Wall time of a step of the last round.", labels=["step"]
    )
    for timed in service.list_timings(history.last.round):
        for field in fields(Timings):
            value = getattr(timed.timings, field.name) / 1e3
            steps.add_metric([field.name.removesuffix("_ms")], value)
    yield steps
    ratios = sorted(row.rho for row in service.list_queue() if row.rho is not None)
    fairness = GaugeMetricFamily(
        "shockwave_rho", "Expected finish-time fairness of active jobs.", labels=["quantile"]
    )
    for quantile in QUANTILES if ratios else ():
        # Nearest rank: an exported ρ is that of a job.
        at = max(math.ceil(quantile * len(ratios)) - 1, 0)
        fairness.add_metric([f"{quantile:g}"], ratios[at])
    yield fairness
