"""Commands that query recorded runs."""

import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.connection import complete_jobs, connect, find_login
from flows.cli.options import Json, Warehouse
from flows.cli.output import print_rows, print_table, say
from flows.cli.progress import get_progress
from flows.scheduler.options import DATABASE_URL
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

QUERY_SECONDS = 600
"""Time limit of a query. An engineering bound."""


def run_sql(
    ctx: typer.Context,
    query: Annotated[str | None, typer.Argument(help="A SELECT over the views.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Run a query of the cookbook instead.")] = None,
    run: Annotated[
        str | None, typer.Option(help="Run for the recipe.", show_default="newest")
    ] = None,
    job: Annotated[
        int | None,
        typer.Option(help="Job for the recipe.", min=0, max=1_000_000_000),
    ] = None,
    timeout: Annotated[
        int, typer.Option(help="Time limit, in seconds.", min=1, max=1_000_000)
    ] = QUERY_SECONDS,
    memory: Annotated[
        int | None,
        typer.Option(help="Memory limit, in MiB.", min=1, max=2**24, show_default="80 % of all"),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Query the history of all runs."""
    from warehouse.analytics.limits import QueryLimits
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics

    if run is None:
        keep_fast(warehouse, get_progress().count("copying figures", "files"), memory)
    analytics = Analytics(warehouse, QueryLimits(timeout, memory))
    if query is not None and recipe is None and run is None and job is None:
        columns, rows = analytics.query(query)
    elif query is None and recipe is not None:
        columns, rows = analytics.recipe(recipe, run, job)
    else:
        raise typer.BadParameter("give a QUERY, or a --recipe with or without --run and --job", ctx)
    if as_json:
        print_rows([dict(zip(columns, row, strict=True)) for row in rows], as_json)
    else:
        print_table(columns, [list(map(_format_value, row)) for row in rows], paged=True)


def _format_value(value: object) -> object:
    """Keep fractions of a second, which tables leave out."""
    return str(value) if isinstance(value, datetime) else value


def rebuild_views(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Rebuild and list the views that SQL can query."""
    from warehouse.analytics.definitions import VIEWS
    from warehouse.analytics.marts import materialise
    from warehouse.store.checks import check_warehouse

    check_warehouse(warehouse)
    runs = materialise(warehouse, get_progress().count("copying marts", "files"))
    copied = f"marts of {counted(runs, 'ended run')} copied"
    say(f"{warehouse / 'analytics.duckdb'}: {', '.join(VIEWS)}; {copied}")


def explain(
    job: Annotated[
        str, typer.Argument(help="Id or name of the job.", autocompletion=complete_jobs)
    ],
    run: Annotated[
        str | None, typer.Option(help="The run.", show_default="the service's or the newest")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", help="A round; by default the job's last active one.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Explain why a job runs, waits or was preempted in a round."""
    from flows.explain.sentences import describe_answer

    by_service = run is None and number is None  # if the run asked about is the service's
    if run is None and not (by_service and find_login()):
        run, of_service, other = _find_default_run(warehouse)
        by_service = by_service and of_service
        if other and not as_json:
            which, rest = "newest run", "service's"
            if of_service:
                which, rest = "service's run", "newest"
            say(f"(shown: the {which}; for the {rest}: --run {other})", err=True)
    if by_service:
        with connect(warehouse) as service:
            answer = service.explain(job)
    else:
        from flows.explain.why import why as ask_why

        show = get_progress().count("simulating the queue", "futures")
        answer = ask_why(job, warehouse, run, number, show)
    if as_json:
        print_rows([asdict(answer)], as_json)
    else:
        for line in describe_answer(answer):
            say(line)


def _find_default_run(warehouse: Path) -> tuple[str, bool, str]:
    """Find the default run: the newest, or that of a running service.

    Returns:
        The run, whether it is the service's, and the other one; empty if there is none.
    """
    from flows.explain.why import find_newest_run
    from flows.scheduler.process import is_locked

    newest, own = find_newest_run(warehouse), _find_service_run(warehouse)
    if own == newest:
        return newest, True, ""
    return (own, True, newest) if own and is_locked(warehouse) else (newest, False, own)


def _find_service_run(warehouse: Path) -> str:
    """Return the run of a warehouse's service; empty without one."""
    from warehouse.store.folder import SNAPSHOT

    url = os.environ.get(DATABASE_URL, "")
    if not url and not (warehouse / SNAPSHOT).parent.is_dir():
        return ""
    from warehouse.inbox.inbox import Inbox

    with Inbox(warehouse, url) as inbox:
        return inbox.run
