"""Commands on recorded runs: `replay`, `why`, `whatif`, `sql`, `views`."""

import math
import os
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.completion import named_jobs
from flows.cli.options import Gpus, Json, RunId, SetOption, Warehouse, option
from flows.cli.output import less, print_rows, print_table, say
from flows.runs.settings import POOLS
from flows.scheduler.options import DATABASE_URL
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

QUERY_SECONDS = 600
"""Time that a query may take. An engineering bound; no sweep is recorded."""

MOST_JOBS = 20
"""Jobs listed whose JCT changes; `--json` lists all. A choice of layout."""


def replay(
    run: RunId,
    number: Annotated[int | None, typer.Option("--round", help="One round only.")] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Repeat the predictions and plans of recorded rounds."""
    from flows.cli.progress import progress
    from flows.explain.replay import replay as replay_run

    show = progress().counted("replaying", "rounds")
    comparison = replay_run(run, warehouse, only=number, progress=show)
    for remark in () if as_json else comparison.remarks:
        say(f"{run}: {remark}")
    for difference in comparison.differences:
        line = {
            "round": difference.round,
            "field": difference.field,
            "recorded": difference.recorded,
            "replayed": difference.replayed,
        }
        if as_json:
            print_rows([line], as_json)
        else:
            say(f"round {difference.round}: {difference.field} differs")
    rounds = counted(comparison.rounds, "round")
    different = len({difference.round for difference in comparison.differences})
    if as_json:
        summary = {
            "run": run,
            "rounds": comparison.rounds,
            "different": different,
            "complete": comparison.complete,
            "remarks": comparison.remarks,
        }
        print_rows([summary], as_json)
    elif not different:
        ended = "" if number is not None or comparison.complete else "; the run has not ended"
        say(f"{run}: {rounds} replayed, all identical byte for byte{ended}")
    else:
        say(f"{run}: {different} of {comparison.rounds} rounds differ")
    if different:
        raise typer.Exit(1)


def sql(
    ctx: typer.Context,
    query: Annotated[str | None, typer.Argument(help="A SELECT over the views.")] = None,
    recipe: Annotated[
        str | None, typer.Option(help="Ask a question of the cookbook instead.")
    ] = None,
    run: Annotated[
        str | None, typer.Option(help="The run that the recipe is asked of.", show_default="newest")
    ] = None,
    job: Annotated[
        int | None,
        typer.Option(help="The job that the recipe is asked of.", min=0, max=1_000_000_000),
    ] = None,
    timeout: Annotated[
        int, typer.Option(help="Seconds after which it is ended.", min=1, max=1_000_000)
    ] = QUERY_SECONDS,
    memory: Annotated[
        int | None,
        typer.Option(help="MiB that it may take.", min=1, max=2**24, show_default="80 % of all"),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Query the history of all runs."""
    from flows.cli.progress import progress
    from warehouse.analytics.limits import Limits
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics

    if run is None:
        keep_fast(warehouse, progress().counted("copying figures", "files"))
    analytics = Analytics(warehouse, Limits(timeout, memory))
    if query is not None and recipe is None and run is None and job is None:
        columns, rows = analytics.query(query)
    elif query is None and recipe is not None:
        columns, rows = analytics.recipe(recipe, run, job)
    else:
        raise typer.BadParameter("give a QUERY, or a --recipe with or without --run and --job", ctx)
    if as_json:
        print_rows([dict(zip(columns, row, strict=True)) for row in rows], as_json)
    else:
        print_table(columns, [list(map(_in_full, row)) for row in rows], paged=True)


def _in_full(value: object) -> object:
    """A value with the parts of a second that lists leave out of times."""
    return str(value) if isinstance(value, datetime) else value


def views(warehouse: Warehouse = DEFAULT_WAREHOUSE) -> None:
    """Rebuild and list the views that SQL can query."""
    from flows.cli.progress import progress
    from warehouse.analytics.definitions import VIEWS
    from warehouse.analytics.marts import materialise
    from warehouse.store.checks import check_warehouse

    check_warehouse(warehouse)
    runs = materialise(warehouse, progress().counted("copying marts", "files"))
    copied = f"marts of {counted(runs, 'ended run')} copied"
    say(f"{warehouse / 'analytics.duckdb'}: {', '.join(VIEWS)}; {copied}")


def why(
    job: Annotated[
        str, typer.Argument(help="The job, by its id or name.", autocompletion=named_jobs)
    ],
    run: Annotated[
        str | None, typer.Option(help="The run.", show_default="the service's or the newest")
    ] = None,
    number: Annotated[
        int | None, typer.Option("--round", help="By default the job's last active one.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Explain why a job runs, waits or was preempted in a round."""
    from flows.cli.jobs import asked_login, desk
    from flows.explain.sentences import in_words

    by_service = run is None and number is None  # if the run asked about is the service's
    if run is None and not (by_service and asked_login()):
        run, of_service, other = _default_run(warehouse)
        by_service = by_service and of_service
        if other and not as_json:
            which, rest = "newest run", "service's"
            if of_service:
                which, rest = "service's run", "newest"
            say(f"(of the {which}; of the {rest}: --run {other})", err=True)
    if by_service:
        with desk(warehouse) as service:
            answer = service.explain(job)
    else:
        from flows.cli.progress import progress
        from flows.explain.why import why as explain

        show = progress().counted("playing the queue forward", "plays")
        answer = explain(job, warehouse, run, number, show)
    if as_json:
        print_rows([asdict(answer)], as_json)
    else:
        for line in in_words(answer):
            say(line)


def _default_run(warehouse: Path) -> tuple[str, bool, str]:
    """The default run: the newest, or that of a running service.

    Returns:
        The run, whether it is the service's, and the other of the two; empty if there is none.
    """
    from flows.explain.why import latest
    from flows.scheduler.process import is_locked

    newest, own = latest(warehouse), _run_of_service(warehouse)
    if own == newest:
        return newest, True, ""
    return (own, True, newest) if own and is_locked(warehouse) else (newest, False, own)


def _run_of_service(warehouse: Path) -> str:
    """The run of a warehouse's service; empty if it has none."""
    from warehouse.store.folder import SNAPSHOT

    url = os.environ.get(DATABASE_URL, "")
    if not url and not (warehouse / SNAPSHOT).parent.is_dir():
        return ""
    from warehouse.inbox.inbox import Inbox

    with Inbox(warehouse, url) as inbox:
        return inbox.run


def whatif(
    run: RunId,
    number: Annotated[int, typer.Option("--round", help="The first round decided anew.")],
    policy: Annotated[str | None, typer.Option(help="Another policy.")] = None,
    parameters: SetOption = None,
    without: Annotated[list[int] | None, typer.Option(help="A job to withdraw.")] = None,
    with_: Annotated[list[Path] | None, typer.Option("--with", help="A job to add (TOML).")] = None,
    gpus: Gpus = None,
    pools: Annotated[str | None, option(POOLS)] = None,
    keep: Annotated[Path | None, typer.Option(help="A new folder to keep the fork in.")] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Fork a run at a round, change something, and compare."""
    from flows.cli.parameters import parse_parameters
    from flows.cli.progress import progress
    from flows.explain.whatif import Change
    from flows.explain.whatif import whatif as run_whatif
    from flows.runs.pools import parse_pools

    change = Change(
        policy=policy,
        parameters=parse_parameters(parameters or ()),
        gpus=gpus,
        pools=() if pools is None else parse_pools(pools),
        without=tuple(without or ()),
        jobs=tuple(with_ or ()),
    )
    outcome = run_whatif(run, warehouse, number, change, keep, watch=progress().run)
    for remark in outcome.remarks:
        say(f"{run}: {remark}", err=True)
    recorded = "recorded"
    if outcome.rounds_so_far is not None:
        recorded = recorded if as_json else "unchanged"
        so_far = f"has not ended, with {counted(outcome.rounds_so_far, 'round')} recorded"
        say(
            f"{run} {so_far}: {recorded} is how it goes on from round {number} without the change",
            err=as_json,
        )
    figures = [
        {"figure": name, recorded: before, "whatif": after, "difference": less(after, before)}
        for name, before, after in outcome.figures
    ]
    jobs = [
        {
            "job_id": job_id,
            "jct_seconds": before,
            "jct_seconds_whatif": after,
            "difference_seconds": less(after, before),
            "ftf": ftf,
            "ftf_whatif": ftf_whatif,
        }
        for job_id, before, after, ftf, ftf_whatif in outcome.jobs
    ]
    if as_json:
        print_rows([*figures, *jobs], as_json)
        return
    print_rows(figures, as_json)
    if gpus is not None or pools:
        say("")
        held = counted(outcome.reference_gpus, "GPU")
        say(f"ftf of both is relative to an equal share of {held}")
    changed = [job for job in jobs if job["jct_seconds"] != job["jct_seconds_whatif"]]
    changed.sort(key=lambda job: -abs(job["difference_seconds"] or math.inf))
    say("")
    say(f"{len(changed)} of {counted(len(jobs), 'job')} end otherwise")
    print_rows(changed[:MOST_JOBS], as_json)
    if keep is not None:
        say("")
        say(f"kept as run {outcome.run} in the warehouse {keep}")
