"""A service's queue: its active jobs with their expected starts and ends."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from flows.api.history import ServiceHistory, predict_last_round
from flows.api.rows import QueueRow, describe_status, describe_wait
from predictor.job import JobSpec
from tasks.rollouts import (
    ExpectedTimes,
    count_available_gpus,
    seconds_to_priority,
    seconds_to_reservation,
)
from tasks.round import Prediction, Round
from tasks.run import Run
from warehouse.wording import counted


def make_queue_rows(
    run: Run,
    this: Round,
    asked: Iterable[int],
    ahead: Mapping[int, ExpectedTimes],
    age_seconds: float = 0.0,
) -> list[QueueRow]:
    """Return rows of active jobs of a solved round, given their forecasts and the age of these."""
    room, first = seconds_to_reservation(run, this), seconds_to_priority(this)
    rows = (_queue_row(this, job_id, ahead.get(job_id)) for job_id in asked)
    return [
        replace(
            row,
            room_by_s=room.get(row.job_id),
            first_by_s=first.get(row.job_id),
            forecast_age_s=age_seconds if row.job_id in ahead else None,
        )
        for row in rows
    ]


def _queue_row(this: Round, job_id: int, ahead: ExpectedTimes | None) -> QueueRow:
    job, plan, clock = this.active[job_id], this.plan, this.observation.clock_seconds
    spec, status = job.spec, describe_status(this.state, job_id)
    if job_id in plan.placement:
        status = "runs"
    elif status == "runs":
        status = "waits"  # it loses its GPUs in this round
    times = dict[str, Any]()
    if ahead is not None:
        times = {
            "starts_in_s": ahead.start.median - clock,
            "starts_low_s": ahead.start.low - clock,
            "starts_high_s": ahead.start.high - clock,
            "ends_in_s": ahead.finish.median - clock,
            "ends_low_s": ahead.finish.low - clock,
            "ends_high_s": ahead.finish.high - clock,
        }
        if rho := ahead.rho:
            times |= {"rho": rho.median, "rho_low": rho.low, "rho_high": rho.high}
    return QueueRow(
        place=plan.order.index(job_id) + 1 if job_id in plan.order else None,
        job_id=job_id,
        name=spec.name,
        tenant=spec.tenant,
        gpus=len(plan.placement.get(job_id, ())) or spec.demand.size,
        status=status,
        price=plan.report.price_of.get(job.own.gpu_type),
        waits_for=_describe_wait(this, job_id),
        **_describe_deadline(spec, clock, ahead),
        **times,
    )


def find_gpu_shortages(name: str, history: ServiceHistory) -> dict[int, str]:
    """Return what jobs wait for, by id; empty if all nodes are in service and open to all."""
    orders = history.state.orders
    if not history.last or not (history.last.solve.drained or orders.cordoned or orders.windows):
        return {}
    _, this = predict_last_round(name, history)
    return {job_id: _describe_wait(this, job_id) for job_id in this.active}


def _describe_wait(this: Prediction, job_id: int) -> str:
    """Describe what keeps a job from running; see `QueueRow.waits_for`."""
    others, there = describe_wait(this.state, job_id), count_available_gpus(this, job_id)
    if others or there is None:
        return others
    spec, orders = this.active[job_id].spec, this.state.orders
    clock = this.observation.clock_seconds
    where = "in service and not cordoned" if orders.cordoned else "in service"
    aside = orders.closed_to(spec.tenant, clock) - orders.cordoned
    windows = (w for w in orders.windows if w.node in aside and w.is_open(clock))
    kept = "".join(f"; node {w.node} is {w.words}" for w in windows)
    return f"{counted(spec.demand.size, 'GPU')}, {there} {where}{kept}"


def _describe_deadline(spec: JobSpec, clock: float, ahead: ExpectedTimes | None) -> dict[str, Any]:
    if not spec.options.deadline_seconds:
        return {}
    at = spec.arrival_seconds + spec.options.deadline_seconds
    ends = (ahead.finish.low, ahead.finish.high) if ahead else None
    return {"deadline_in_s": at - clock, "in_time": _judge_deadline(at, clock, ends)}


def _judge_deadline(deadline: float, clock: float, ends: tuple[float, float] | None) -> str:
    """Return whether a job should end by its deadline; see `QueueRow.in_time`.

    `ends` is the interval of its end; None without a forecast. Times are on the run's clock.
    """
    if deadline < clock:
        return "missed"
    if ends is None:
        return ""
    return "yes" if ends[1] <= deadline else "no" if ends[0] > deadline else "maybe"
