"""Commands about policies."""

from dataclasses import asdict
from pathlib import Path
from textwrap import wrap
from typing import Annotated

import typer

from flows.cli.options import Json
from flows.cli.output import get_terminal_width, print_rows, say
from flows.cli.progress import get_progress


def print_policies(as_json: Json = False) -> None:
    """List the policies, their sources and parameters."""
    from flows.evaluation.listed import list_policies

    listed = list(list_policies())
    if as_json:
        print_rows(map(asdict, listed), as_json)
        return
    for policy in listed:
        settable = [f"{key}={value:g}" for key, value in policy.parameters.items()]
        lines = [policy.summary, *filter(None, [policy.source, policy.package])]
        lines += [f"parameters: {' '.join(settable)}"] if settable else []
        say(policy.policy)
        for line in lines:
            for part in wrap(line, min(90, (get_terminal_width() or 94) - 4)):
                say(f"    {part}")


def check_conformance(
    folder: Annotated[Path, typer.Argument(help="Public traces and their published results.")],
    as_json: Json = False,
) -> None:
    """Check the published policies against their published results."""
    from flows.evaluation.conformance import CASES, TOLERANCES
    from flows.evaluation.conformance import check_conformance as of_one_type
    from flows.evaluation.conformance_of_types import (
        THROUGHPUTS,
        check_conformance_of_types,
        read_published_runs,
    )

    show, rows = get_progress().count("published policies", "runs"), []
    if (folder / THROUGHPUTS).exists():
        judged, count = check_conformance_of_types(folder), len(read_published_runs(folder))
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
