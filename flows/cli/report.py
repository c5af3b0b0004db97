"""The command `report`."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Warehouse
from flows.cli.output import print_result
from flows.cli.progress import get_progress
from flows.runs.extras import require
from warehouse import DEFAULT_WAREHOUSE

MEMORY_MIB = 640
"""Memory for the queries of a report; what needs more spills to disk, which is no slower."""


def report(
    name: Annotated[str, typer.Argument(help="RUN; RUN,RUN,…; or a campaign.")],
    out: Annotated[
        Path | None, typer.Option(help="File or folder for the page; replaces an earlier page.")
    ] = None,
    figures: Annotated[
        Path | None, typer.Option(help="Folder for the figures as SVG and PNG.")
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(help="Policy to compare the others with.", show_default="the first"),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Write one self-contained HTML page about runs, with figures."""
    require("report", "report")
    from warehouse.analytics.limits import QueryLimits
    from warehouse.analytics.questions import Analytics
    from warehouse.report import (
        page_path,
        read_report,
        write_figures,
        write_page,
    )
    from warehouse.store.durable import check_writable

    shown = get_progress()
    path = page_path(out, warehouse, name)
    if figures:
        check_writable(figures / "figure")  # which is a folder, or can be made
    shown.begin(f"reading {name}")
    limits = QueryLimits(memory_mib=MEMORY_MIB)
    content = read_report(Analytics(warehouse, limits), name, against)
    runs = content.runs
    title = ", ".join(runs) if len(runs) < 4 else name if "," not in name else f"{len(runs)} runs"
    shown.begin("writing the page")
    write_page(content, path, f"Shockwave: {title}")
    shown.begin("drawing figures")
    drawn = write_figures(content.figures, figures) if figures else []
    size, names = path.stat().st_size, [str(figure) for figure in drawn]
    row = {"report": str(path), "bytes": size, "runs": runs, "figures": names}
    text = f"{path}: {size / 1e6:.1f} MB" + f"\n{figures}: {len(drawn)} figures" * bool(drawn)
    print_result(row, text, as_json)
