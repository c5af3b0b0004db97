"""What the pages show: rows of the service, as the templates take them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import warehouse
from flows.api.authorization import AuthorizedApi
from flows.api.front import format_logs
from flows.api.job_history import PriceRow
from flows.api.rows import JobRow, NodeRow
from flows.api.whatif import WhatIf, parse_budget_factor
from flows.web.page.drawing import Point, draw_chart
from predictor.errors import InputError
from tasks.commands import CommandKind
from warehouse.inbox.tokens import Role, Token

if TYPE_CHECKING:
    from flows.api.job_logs import JobLogs

FOLDER = Path(__file__).parent
LOOK = Path(warehouse.__file__).parent / "report" / "page.css"
"""The look of reports, which the page shares."""

MOST_LOG = 2**18
"""Bytes of a log that are shown, at most. A choice of layout."""

MOST_QUEUED, MOST_ENDED = 300, 15
"""Rows of the tables. A choice of layout."""

ORDERS = (CommandKind.CANCEL, CommandKind.HOLD, CommandKind.RELEASE, CommandKind.REQUEUE)
"""Commands that a job's page has a button for."""

NODE_ORDERS = tuple(kind for kind in CommandKind if kind.of_node)
"""Commands that operators have a button for at each node."""

SUPPOSED = {
    "cancel": "Jobs that are cancelled",
    "hold": "Jobs put on hold",
    "release": "Jobs released",
    "drain": "Nodes drained",
    "cordon": "Nodes cordoned",
    "uncordon": "Nodes that come back",
    "budget": "Tenants' budgets",
}
"""Fields of the form that supposes a change."""

ACTIVE = ("accepted", "waits", "runs", "held", "cancelled")


@dataclass(frozen=True, slots=True)
class GpuTile:
    """A GPU.

    Attributes:
        number: Its index.
        held: Whether a job holds it.
        job: That job, if the caller sees it.
        name: Its name.
    """

    number: int
    held: bool
    job: int | None
    name: str


@dataclass(frozen=True, slots=True)
class NodeTile:
    """A node and its GPUs."""

    row: NodeRow
    gpus: tuple[GpuTile, ...]


@dataclass(frozen=True, slots=True)
class PriceChart:
    """The last prices of a GPU type."""

    gpu_type: str
    last: float
    draw_chart: Markup


def make_overview(service: AuthorizedApi, caller: Token) -> dict[str, Any]:
    """The cluster, the queue, prices and tenants, as far as the caller sees them."""
    jobs, queue = service.jobs(caller), service.queue(caller)
    holders = {gpu: job for job in jobs for gpu in job.held_gpus}
    nodes = []
    for row in service.nodes(caller):
        gpus = [(number, holders.get(number)) for number in row.gpu_indices]
        nodes.append(
            NodeTile(
                row,
                tuple(
                    GpuTile(
                        n, n in row.held_gpus, job.job_id if job else None, job.name if job else ""
                    )
                    for n, job in gpus
                ),
            )
        )
    ended = sorted(
        (job for job in jobs if job.status not in ACTIVE),
        key=lambda job: (-1.0 if job.ended_s is None else job.ended_s, job.job_id),
        reverse=True,
    )
    return {
        "status": service.status(),
        "nodes": nodes,
        "orders": [kind.value for kind in NODE_ORDERS] if caller.role is Role.OPERATOR else [],
        "named": bool(service.desk.inbox.cluster),
        "types": len({node.row.gpu_type for node in nodes}),
        "queue": queue[:MOST_QUEUED],
        "more": max(len(queue) - MOST_QUEUED, 0),
        "tenants": service.tenants(caller),
        "prices": _prices(service.prices()),
        "ended": ended[:MOST_ENDED],
    }


def _prices(rows: Sequence[PriceRow]) -> list[PriceChart]:
    by_type = defaultdict[str, list[PriceRow]](list)
    for row in rows:
        by_type[row.gpu_type].append(row)
    return [
        PriceChart(
            kind,
            typed[-1].price,
            draw_chart(
                [Point(row.at_s / 3600.0, row.price) for row in typed],
                "hours on the run's clock",
                "price",
                f"Price of a GPU-round{f' of {kind}' * bool(kind)} in the last {len(typed)} rounds",
            ),
        )
        for kind, typed in sorted(by_type.items())
    ]


def make_job_page(service: AuthorizedApi, caller: Token, target: str) -> dict[str, Any]:
    """A job: its state, costs, why, forecasts, losses and leases.

    Raises:
        NotThere: There is none that the caller sees.
    """
    row = service.job(caller, target)
    name = str(row.job_id)
    course = service.course(caller, name)
    try:
        why = str(service.why(caller, name)).splitlines()
    except InputError as error:
        why = [f"{error.place} {error.problem}."]
    ahead = [queued for queued in service.queue(caller) if queued.job_id == row.job_id]
    may = caller.role is not Role.READER and row.status in ACTIVE
    hours = [
        Point(*(seconds / 3600.0 for seconds in (f.run_s, f.remaining_s, f.low_s, f.high_s)))
        for f in course.forecasts
    ]
    return {
        "row": row,
        "course": course,
        "ahead": ahead[0] if ahead else None,
        "why": why,
        "orders": [kind.value for kind in ORDERS] if may else [],
        "forecast": draw_chart(
            hours, "run time so far (h)", "still needed (h)", f"Forecasts of job {row.job_id}"
        ),
        "loss": draw_chart(
            [Point(report.epoch, report.loss) for report in course.losses],
            *("epoch", "loss", f"Training loss of job {row.job_id} by epoch"),
        ),
        "held": list(reversed(course.held)),
        "prints": bool(service.desk.inbox.cluster),
    }


def open_logs(service: AuthorizedApi, caller: Token, target: str) -> "tuple[JobRow, JobLogs]":
    """A job, and the output of its containers, which `log_of` closes.

    Raises:
        NotThere: There is no such job that the caller sees.
        InputError: It has never had GPUs, or runs on a virtual cluster.
    """
    row = service.job(caller, target)
    return row, service.printed(caller, str(row.job_id))


def make_log_page(row: JobRow, printed: "JobLogs") -> dict[str, Any]:
    """The end of the output of a job's containers; asks Docker hosts."""
    text, length = b"", 0
    with closing(printed):
        for part in format_logs(printed.more()):
            length += len(part)
            text = (text + part)[-MOST_LOG:]
    shown = text.decode(errors="replace")
    return {
        "row": row,
        "text": "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown),
        "cut": length > MOST_LOG,
        "most": MOST_LOG,
    }


@dataclass(frozen=True, slots=True)
class SupposedField:
    """A field of the form that supposes a change."""

    label: str
    text: str


def make_whatif_page(
    service: AuthorizedApi, caller: Token, asked: Mapping[str, str]
) -> dict[str, Any]:
    """The effect of a change on the jobs that the caller sees.

    Args:
        service: The service.
        caller: Who asks.
        asked: The form's fields.

    Raises:
        InputError: The change is empty or invalid, or the caller may not suppose it.
    """
    texts = {name: asked.get(name, "")[:1000] for name in SUPPOSED}
    change: dict[str, Any] = {name: text.split()[:100] for name, text in texts.items()}
    change["budget"] = dict(parse_budget_factor(text) for text in change["budget"])
    return {
        "fields": {name: SupposedField(SUPPOSED[name], text) for name, text in texts.items()},
        "rows": service.forecast(caller, WhatIf(**change)),
        "new": [],
    }


@cache
def load_templates() -> Environment:
    """The templates."""
    made = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,  # users choose the names of jobs and tenants
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {"span": span, "between": between, "digits": digits, "amount": amount}
    return made


def span(seconds: float | None) -> str:
    """A time as people read it."""
    if seconds is None:
        return "–"
    if abs(seconds) < 100.0:
        return f"{seconds:z.0f} s"
    if abs(seconds) < 100.0 * 60.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"


def between(seconds: float | None, low: float | None, high: float | None) -> str:
    """A time with its interval."""
    return "–" if seconds is None else f"{span(seconds)} ({span(low)} to {span(high)})"


def digits(value: float | None) -> str:
    """A number in three digits."""
    return "–" if value is None else f"{value:,.3g}"


def amount(value: float | None) -> str:
    """A cost."""
    return "–" if value is None else f"{value:,.2f}"
