"""The contents of pages, as the templates take them."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

import warehouse
from flows.api.authorization import AuthorizedApi
from flows.api.job_history import LAST, PriceRow, UsageRow
from flows.api.log_format import format_logs
from flows.api.requests import WhatIf, parse_budget_factor
from flows.api.rows import JobRow
from flows.web.page.drawing import Point, draw_chart
from predictor.errors import InputError
from tasks.commands import CommandKind
from warehouse.inbox.tokens import Role

if TYPE_CHECKING:
    from flows.api.job_logs import JobLogs

FOLDER = Path(__file__).parent
LOOK = Path(warehouse.__file__).parent / "report" / "page.css"
"""Style sheet that the page shares with reports."""

MOST_LOG = 2**18
"""Most bytes of a log that are shown. A choice of layout."""

MOST_QUEUED, MOST_ENDED = 300, 15
"""Most rows of the tables. A choice of layout."""

MOST_LISTED = 200
"""Most jobs on a page of all jobs. A choice of layout."""

CONFIRMED = ("cancel", "drain", "remove")
"""Commands that a browser asks about before it sends them."""

COMMANDS = (CommandKind.CANCEL, CommandKind.HOLD, CommandKind.RELEASE, CommandKind.REQUEUE)
"""Commands with a button on a job's page."""

NODE_COMMANDS = tuple(k for k in CommandKind if k.of_node and k not in CommandKind.windows())
"""Commands with a button on each node, for operators."""

SUPPOSED = {
    "cancel": "Jobs cancelled",
    "hold": "Jobs put on hold",
    "release": "Jobs released",
    "drain": "Nodes drained",
    "cordon": "Nodes cordoned",
    "uncordon": "Nodes returned",
    "budget": "Budgets of tenants",
}
"""Labels of the fields of a hypothetical change."""

ACTIVE = ("accepted", "waits", "runs", "held", "cancelled")


def make_overview(api: AuthorizedApi) -> dict[str, Any]:
    """Return the overview of cluster, queue, prices and tenants."""
    jobs, nodes = api.list_jobs(), api.list_nodes()
    # Who waits comes first: the map shows who runs.
    queue = sorted(api.list_queue(), key=lambda row: row.status == "runs")
    ended = sorted(
        (job for job in jobs if job.status not in ACTIVE),
        key=lambda job: (-1.0 if job.ended_s is None else job.ended_s, job.job_id),
        reverse=True,
    )
    return {
        "status": api.get_status(),
        "nodes": nodes,
        "holders": {
            gpu: job for job in jobs for gpu in job.held_gpus
        },  # only jobs that the caller sees
        "commands": [kind.value for kind in NODE_COMMANDS]
        if api.caller.role is Role.OPERATOR
        else [],
        "confirmed": CONFIRMED,
        "named": bool(api.service.inbox.cluster),
        "types": len({node.gpu_type for node in nodes}),
        "queue": queue[:MOST_QUEUED],
        "more": max(len(queue) - MOST_QUEUED, 0),
        "tenants": api.list_tenants(),
        "prices": api.service.keep("drawn prices", lambda: _draw_prices(api.list_prices())),
        "usage": api.service.keep("drawn usage", lambda: _draw_usage(api.list_usage())),
        "ended": ended[:MOST_ENDED],
    }


def _draw_prices(rows: Sequence[PriceRow]) -> list[tuple[str, float, Markup]]:
    """Return for each GPU type its name, its last price, and a chart of its prices."""
    by_type = defaultdict[str, list[PriceRow]](list)
    for row in rows:
        by_type[row.gpu_type].append(row)
    drawn = []
    for kind, typed in sorted(by_type.items()):
        points = [Point(row.at_s / 3600.0, row.price) for row in typed]
        about = f"Price of a GPU-round{f' of {kind}' * bool(kind)} in the last {len(typed)} rounds"
        chart = draw_chart(points, "hours on the run's clock", "price", about)
        drawn.append((kind, typed[-1].price, chart))
    return drawn


def _draw_usage(rows: Sequence[UsageRow]) -> list[Markup]:
    """Return the charts of held GPUs, waiting jobs and ρ; none before the second round."""
    hours = "hours on the run's clock"
    held = [Point(row.at_s / 3600.0, row.held_gpus) for row in rows]
    waiting = [Point(row.at_s / 3600.0, row.waiting) for row in rows]
    fair = [
        Point(row.at_s / 3600.0, row.rho, row.rho, row.worst_rho)
        for row in rows
        if row.rho is not None
    ]
    about = f"Median and worst ρ of the last {LAST} jobs that finished"
    charts = (
        draw_chart(held, hours, "GPUs held", f"GPUs held in the last {len(rows)} rounds"),
        draw_chart(waiting, hours, "jobs waiting", f"Jobs waiting in the last {len(rows)} rounds"),
        draw_chart(fair, hours, f"ρ of the last {LAST} jobs", about),
    )
    return [chart for chart in charts if chart]


def make_jobs_page(api: AuthorizedApi, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return a page of all jobs, the newest first, that fit the fields of its form."""
    asked = {name: fields.get(name, "").strip()[:100] for name in ("search", "status", "tenant")}
    jobs = api.list_jobs()
    words = asked["search"].casefold().split()
    found = [
        row
        for row in reversed(jobs)
        if asked["status"] in ("", row.status)
        and asked["tenant"] in ("", row.tenant)
        and all(word in _to_text(row) for word in words)
    ]
    text = fields.get("page", "")
    pages = max(-(-len(found) // MOST_LISTED), 1)
    page = min(int(text), pages) if text.isascii() and text.isdigit() and 0 < len(text) < 7 else 1
    page = max(page, 1)
    return {
        "asked": asked,
        "statuses": sorted({row.status for row in jobs}),
        "tenants": sorted({row.tenant for row in jobs}),
        "found": len(found),
        "rows": found[(page - 1) * MOST_LISTED : page * MOST_LISTED],
        "page": page,
        "pages": pages,
    }


def _to_text(row: JobRow) -> str:
    """Return what a search among jobs looks at."""
    return f"{row.job_id} {row.name} {row.tenant} {row.by} {row.model} {row.reason}".casefold()


def make_job_page(api: AuthorizedApi, target: str) -> dict[str, Any]:
    """Return a job's page: state, costs, explanation, forecasts, losses and leases.

    Raises:
        JobNotFound: The caller sees no such job.
    """
    row = api.get_job(target)
    name = str(row.job_id)
    history = api.get_job_history(name)
    try:
        why = str(api.explain(name)).splitlines()
    except InputError as error:
        why = [f"{error.place} {error.problem}."]
    queued = next((one for one in api.list_queue() if one.job_id == row.job_id), None)
    may = api.caller.role is not Role.READER and row.status in ACTIVE
    hours = [
        Point(*(seconds / 3600.0 for seconds in (f.run_s, f.remaining_s, f.low_s, f.high_s)))
        for f in history.forecasts
    ]
    return {
        "row": row,
        "history": history,
        "queued": queued,
        "why": why,
        "commands": [kind.value for kind in COMMANDS] if may else [],
        "confirmed": CONFIRMED,
        "forecast": draw_chart(
            hours, "run time so far (h)", "still needed (h)", f"Forecasts of job {row.job_id}"
        ),
        "loss": draw_chart(
            [Point(report.epoch, report.loss) for report in history.losses],
            *("epoch", "loss", f"Training loss of job {row.job_id} by epoch"),
        ),
        "held": list(reversed(history.held)),
        "prints": bool(api.service.inbox.cluster),
    }


def open_logs(api: AuthorizedApi, target: str) -> "tuple[JobRow, JobLogs]":
    """Return a job, and the output of its containers, which `make_log_page` closes.

    Raises:
        JobNotFound: The caller sees no such job.
        InputError: The job never held GPUs, or runs on a virtual cluster.
    """
    row = api.get_job(target)
    return row, api.open_logs(str(row.job_id))


def make_log_page(row: JobRow, logs: "JobLogs") -> dict[str, Any]:
    """Return the page with the end of a job's output; waits for Docker hosts."""
    text, length = b"", 0
    with closing(logs):
        for part in format_logs(logs.read_new()):
            length += len(part)
            text = (text + part)[-MOST_LOG:]
    shown = text.decode(errors="replace")
    return {
        "row": row,
        "text": "".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in shown),
        "cut": length > MOST_LOG,
        "most": MOST_LOG,
    }


def make_whatif_page(api: AuthorizedApi, fields: Mapping[str, str]) -> dict[str, Any]:
    """Return the page about the effect of a hypothetical change, from the form's fields.

    Raises:
        InputError: The change is invalid, or the caller may not make it.
    """
    texts = {name: fields.get(name, "")[:1000] for name in SUPPOSED}
    change: dict[str, Any] = {name: text.split()[:100] for name, text in texts.items()}
    change["budget"] = dict(parse_budget_factor(text) for text in change["budget"])
    return {
        "fields": {name: (SUPPOSED[name], text) for name, text in texts.items()},
        "rows": api.forecast(WhatIf(**change)),
        "new": [],
    }


@cache
def load_templates() -> Environment:
    """Load the templates and their filters."""
    loaded = Environment(
        loader=FileSystemLoader(FOLDER),
        autoescape=True,  # users choose the names of jobs and tenants
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    loaded.filters |= {
        "span": format_span,
        "between": format_interval,
        "digits": lambda value: "–" if value is None else f"{value:,.3g}",
        "amount": lambda cost: "–" if cost is None else f"{cost:,.2f}",
    }
    return loaded


def format_span(seconds: float | None) -> str:
    """Format a time in seconds, minutes or hours."""
    if seconds is None:
        return "–"
    if abs(seconds) < 100.0:
        return f"{seconds:z.0f} s"
    if abs(seconds) < 100.0 * 60.0:
        return f"{seconds / 60.0:.0f} min"
    return f"{seconds / 3600.0:.1f} h"


def format_interval(seconds: float | None, low: float | None, high: float | None) -> str:
    """Format a time with its interval."""
    interval = f" ({format_span(low)} to {format_span(high)})" if seconds is not None else ""
    return f"{format_span(seconds)}{interval}"
