"""The command `hindsight`."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import (
    Gpus,
    Json,
    Pools,
    SetOption,
    Warehouse,
    expand_settings,
    parse_parameters,
)
from flows.cli.output import find_best, print_left_out, print_rows, print_side_by_side, say
from flows.cli.progress import get_progress
from flows.cli.simulate import parse_policies
from flows.runs.extras import require
from flows.runs.settings import ClusterSize, SimulationSettings
from flows.runs.workload_source import LogOptions, Source
from warehouse import DEFAULT_WAREHOUSE


@expand_settings(log=LogOptions)
def hindsight(
    file: Annotated[Path, typer.Argument(help="Log of a cluster: an export of its scheduler.")],
    log: LogOptions,
    format: Annotated[
        str, typer.Option(help="Format of the log: sacct, philly, table, …")
    ] = "sacct",
    gpus: Gpus = None,
    pools: Pools = "",
    policies: Annotated[str, typer.Option(help="Comma-separated.")] = "shockwave,fifo,srtf",
    parameters: SetOption = None,
    round_seconds: Annotated[
        float | None,
        typer.Option(help="Length of a round, in seconds; by default 120, more for long logs."),
    ] = None,
    restart_seconds: Annotated[
        float, typer.Option(help="Time that a restart costs a job, in seconds.")
    ] = SimulationSettings.restart_seconds,
    anonymous: Annotated[
        bool, typer.Option("--anonymous", help="Write numbers for users, accounts and jobs.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="File or folder for the page; replaces an earlier page.")
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Compare what a cluster did, by its log, with what policies would have done."""
    require("report", "hindsight")
    from flows.campaigns.hindsight import plan_hindsight, run_policies
    from warehouse.analytics.marts import keep_fast
    from warehouse.analytics.questions import Analytics
    from warehouse.hindsight.contents import read_hindsight
    from warehouse.hindsight.page import write_hindsight
    from warehouse.hindsight.schedules import read_actual, read_schedule
    from warehouse.report import page_path
    from warehouse.workloads.moments import Moments

    shown = get_progress()
    shown.begin("reading the log")
    plan = plan_hindsight(
        Source(trace=file, format=format, **asdict(log)),
        ClusterSize(gpus, pools=pools) if gpus is not None or pools else None,
        restart_seconds,
        names := parse_policies(policies),
        warehouse,
        parse_parameters(parameters),
        anonymous=anonymous,
        round_seconds=round_seconds,
    )
    about = "hindsight" if anonymous else f"hindsight-{file.name}"
    path = page_path(out, warehouse, f"{about}-{plan.digest}")
    runs = run_policies(plan.starts, warehouse, shown.count(", ".join(names), "jobs"))
    shown.begin("copying figures")
    keep_fast(warehouse)
    shown.begin("writing the page")
    analytics = Analytics(warehouse)
    schedules = [
        read_actual(plan.jobs),
        *(
            read_schedule(analytics, run, name, plan.jobs)
            for run, name in zip(runs, names, strict=True)
        ),
    ]
    content = read_hindsight(schedules, plan.cluster, Moments.of(log.zone).zone)
    write_hindsight(analytics, content, path, f"Hindsight: {plan.jobs.log.source}")
    rows = content.rows()
    if as_json:
        print_rows([{**row, "page": str(path)} for row in rows], as_json)
        print_left_out(plan.jobs.log.left_out, plan.jobs.workload.slots, err=True)
        return
    say(content.about)
    best = {
        name: ", ".join(find_best(name, {str(row["schedule"]): row[name] for row in rows}))
        for name in rows[0]
    }
    say(content.verdict)
    print_side_by_side([*rows, best | {"schedule": "best"}], heading="schedule")
    print_left_out(plan.jobs.log.left_out, plan.jobs.workload.slots)
    say(f"The cluster: {plan.cluster}")
    say(f"{path}: who gains, who loses, and how far this can be trusted")
