"""Commands that evaluate policies, solvers and forecasts."""

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

from flows.cli.options import Backend, Json, Pools, gpus_and_types, takes
from flows.cli.output import print_rows, say, terminal_width
from flows.runs.settings import DEFAULT_BACKEND
from flows.runs.workload_source import Source
from predictor.errors import InputError


def policies(as_json: Json = False) -> None:
    """List the policies, where each was published, and what can be set."""
    from flows.evaluation.listed import listed_policies

    listed = list(listed_policies())
    if as_json:
        print_rows(map(asdict, listed), as_json)
        return
    for policy in listed:
        settable = [f"{key}={value:g}" for key, value in policy.parameters.items()]
        lines = [policy.summary, *filter(None, [policy.source, policy.package])]
        lines += [f"parameters: {' '.join(settable)}"] if settable else []
        say(policy.policy)
        for line in lines:
            for part in wrap(line, min(90, (terminal_width() or 94) - 4)):
                say(f"    {part}")


def conformance(
    folder: Annotated[Path, typer.Argument(help="Public traces and their published results.")],
    as_json: Json = False,
) -> None:
    """Run the published policies as published; exit 1 if a figure is off."""
    from flows.cli.progress import progress
    from flows.evaluation.conformance import CASES, TOLERANCES
    from flows.evaluation.conformance import conformance as of_one_type
    from flows.evaluation.conformance_of_types import (
        THROUGHPUTS,
        conformance_of_types,
        published_runs,
    )

    show, rows = progress().counted("published policies", "runs"), []
    if (folder / THROUGHPUTS).exists():
        judged, count = conformance_of_types(folder), len(published_runs(folder))
    else:
        judged, count = of_one_type(folder), len(CASES) * len(TOLERANCES)
    for row in judged:
        rows.append(row)
        show(len(rows), count)
        if as_json:
            print_rows([row], as_json)
    if not as_json:
        print_rows(rows, as_json)
    if not all(row["ok"] for row in rows):
        raise typer.Exit(1)


@takes(source=Source)
def forecast_error(
    source: Source,
    gpus: Annotated[int | None, typer.Option(help="GPUs, for a contention factor.")] = None,
    pools: Pools = "",
    as_json: Json = False,
) -> None:
    """Judge forecasts of the remaining run time on jobs whose truth is known."""
    from flows.evaluation.forecast_error import forecast_errors

    if gpus is not None and source.contention_factor is None:
        raise InputError("gpus", "means nothing without a contention factor", "leave it out")
    workload = source.open(*gpus_and_types(source, gpus, pools))
    print_rows(map(asdict, forecast_errors(workload, source.seed)), as_json)


def solve(
    file: Annotated[Path, typer.Argument(help="Recorded window problems, one JSON a line.")],
    backend: Backend = DEFAULT_BACKEND,
    as_json: Json = False,
) -> None:
    """Solve recorded window problems and lay them out."""
    from flows.cli.progress import progress
    from flows.evaluation.windows import solve_windows

    show = progress().counted("solving", "windows")

    def solved() -> Iterator[dict[str, object]]:
        for number, row in enumerate(solve_windows(file, backend), start=1):
            show(number, None)
            yield row

    print_rows(solved(), as_json)
