"""Commands about campaigns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.campaigns import Runner
from flows.cli.options import CellDriverOption, DriverName, EveryFigure, Json, Warehouse
from flows.cli.output import find_best, print_rows, say
from flows.cli.progress import get_progress, wait_for_prefect
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

if TYPE_CHECKING:
    from warehouse.analytics.intervals import FigureRow, Interval

MORE_FIGURES = (
    *("jct_p50_s", "jct_p95_s", "mean_queueing_s", "preemptions", "nash_welfare"),
    *("makespan_difference_s", "mean_jct_difference_s", "jct_p99_difference_s"),
    "worst_rho_difference",
)
"""Columns of a campaign's tables that only `--all` shows."""


def run(
    file: Annotated[Path, typer.Argument(help="File (TOML) of the campaign.")],
    runner: Annotated[Runner, typer.Option(help="What runs the cells.")] = Runner.PROCESSES,
    workers: Annotated[
        int, typer.Option(min=0, max=1024, help="Cells at the same time; 0: one per core.")
    ] = 0,
    address: Annotated[
        str | None, typer.Option(help="Existing Dask scheduler or Ray head node.")
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Run finished cells again as well.")
    ] = False,
    driver: CellDriverOption = DriverName.PLAIN,
    every_figure: EveryFigure = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Run all cells of a campaign."""
    from flows.campaigns.cells import check_start
    from flows.campaigns.plan import read_campaign
    from warehouse.store.campaigns import write_plan
    from warehouse.store.durable import check_writable

    plan = read_campaign(file)
    check_start(plan, warehouse)
    check_writable(warehouse)
    from flows.campaigns.execution import CellsFailed, campaign_id, run_campaign, watch_campaigns
    from flows.campaigns.runners import CLUSTERS, check_runner

    check_runner(runner, address)
    failure: CellsFailed | None = None
    with watch_campaigns(cells=get_progress().count(plan.name, "cells")):
        try:
            if driver is DriverName.PREFECT or runner in CLUSTERS:
                wait_for_prefect()
                from flows.campaigns.campaign import run_campaign_in_prefect

                run_campaign_in_prefect(plan, runner, workers, address, warehouse, fresh)
            else:
                run_campaign(plan, runner, workers, warehouse, fresh)
        except CellsFailed as error:
            failure = error
    name = campaign_id(plan)
    write_plan(warehouse, name, "campaign.toml", file.read_text(encoding="utf-8"))
    _report(warehouse, name, as_json, every_figure)
    if failure is not None:
        raise failure


def show(
    name: Annotated[str | None, typer.Argument(help="A campaign, to show its results.")] = None,
    of_jobs: Annotated[
        str | None,
        typer.Option(help="Restrict figures to some jobs, such as 'scale_factor = 4'."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(
            help="Policy to compare the others with.", show_default="the campaign's first"
        ),
    ] = None,
    every_figure: EveryFigure = False,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """List campaigns, or show the results of one."""
    from warehouse.analytics.listing import list_campaigns
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics

    for option, value in (("of_jobs", of_jobs), ("against", against)):
        if value is not None and name is None:
            raise InputError(option, "applies to one campaign", "name the campaign")
    keep_fast(warehouse, get_progress().count("copying figures", "files"))
    if name is not None:
        _report(warehouse, name, as_json, every_figure, of_jobs, against)
        return
    rows = list_campaigns(Analytics(warehouse))
    print_rows(rows, as_json, paged=True)
    if not rows and not as_json:
        say("(no campaigns)", err=True)


def _report(
    warehouse: Path,
    campaign: str,
    as_json: bool,
    every_figure: bool = False,
    of_jobs: str | None = None,
    against: str | None = None,
) -> None:
    """Print means over seeds, and differences of the policies from one of them."""
    from flows.campaigns.summary import compare_policies, summarize
    from warehouse.store.campaigns import read_cells

    cells = read_cells(warehouse, campaign)
    groups = summarize(warehouse, cells, of_jobs)
    pairs = compare_policies(warehouse, cells, of_jobs, against)
    if as_json:
        rows = [*(group.row() for group in groups), *(pair.row() for pair in pairs)]
        print_rows([{"campaign": campaign} | row for row in rows], as_json)
    if of_jobs and groups and not any(group.row()["jobs"] for group in groups):
        say("(no job matches)", err=True)
        return
    if as_json:
        return
    finished = [cell for cell in cells if cell.status == "finished"]
    say(
        f"{campaign}: {len(finished)} of {counted(len(cells), 'cell')} finished, "
        f"{sum(cell.seconds for cell in finished):,.0f} s of runs; means over seeds ± 95 %"
        f"{f', of jobs with {of_jobs}' if of_jobs else ''}"
    )
    asked = ("workload", "cluster", "options", "mean_jct_s", "jct_p99_s") if of_jobs else ()
    rows = _mark_best(groups)
    print_rows([_shorten(row, every_figure) for row in rows], as_json, important=asked)
    best = "* best; " if any("*" in str(value) for row in rows for value in row.values()) else ""
    if best or not every_figure:
        say(f"{best}{'' if every_figure else 'more figures: add --all'}".rstrip("; "))
    if pairs:
        base = pairs[0].labels["against"]
        say(f"\ndifferences from {base} over pairs that share all else, ± 95 %")
        rows = [_shorten(pair.shown(), every_figure) for pair in pairs]
        several = len({pair.labels["workload"] for pair in pairs}) > 1
        for row in rows:
            del row["against"]
            if not several:
                del row["workload"]
        print_rows(rows, as_json)


def _mark_best(groups: "Sequence[FigureRow]") -> list[dict[str, object]]:
    """Return the rows of a table, with a star at the best means among alike policies."""

    def circumstances(group: "FigureRow") -> tuple[object, ...]:
        return tuple(group.labels[name] for name in ("workload", "cluster", "options"))

    rows = []
    for group in groups:
        row, policy = group.shown(), str(group.labels["policy"])
        alike = [other for other in groups if circumstances(other) == circumstances(group)]
        for name in group.figures:
            means = {str(other.labels["policy"]): _mean(other.figures[name]) for other in alike}
            if policy in find_best(name, means):
                row[name] = f"{row[name]} *"
        rows.append(row)
    return rows


def _mean(figure: "Interval | None") -> float | None:
    return None if figure is None else figure.mean


def _shorten(row: dict[str, object], every_figure: bool) -> dict[str, object]:
    return {name: row[name] for name in row if every_figure or name not in MORE_FIGURES}
