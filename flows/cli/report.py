"""The command `report`."""

from pathlib import Path
from typing import Annotated

import typer

from flows.cli.options import Json, Warehouse
from flows.cli.output import print_result
from flows.cli.progress import get_progress
from flows.runs.extras import require
from predictor.errors import InputError, meant
from warehouse import DEFAULT_WAREHOUSE
from warehouse.wording import counted

MEMORY_MIB = 640
"""Memory for the queries of a report; what needs more spills to disk, which is no slower."""


def report(
    name: Annotated[str, typer.Argument(help="RUN; RUN,RUN,…; or a campaign.")],
    out: Annotated[
        Path | None, typer.Option(help="File or folder for the page; replaces an earlier page.")
    ] = None,
    figures: Annotated[Path | None, typer.Option(help="Folder for the figures as files.")] = None,
    only: Annotated[
        str,
        typer.Option(
            help="Figures to write, by the beginnings of their names, such as comparison,load.",
            show_default="all",
        ),
    ] = "",
    formats: Annotated[str, typer.Option(help="File formats of the figures.")] = "svg,png,pdf",
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
    from warehouse.report import page_path, read_report, write_figures, write_page
    from warehouse.report.paper import ImageFormat, select_figures
    from warehouse.store.durable import check_writable

    shown = get_progress()
    known = [*ImageFormat]
    chosen = [part.strip() for part in formats.split(",")]
    for part in chosen:
        if part not in known:
            raise InputError("formats", f"unknown format {part!r}", meant(part, known))
    if only and not figures:
        raise InputError("only", "restricts the figures of --figures", "add --figures FOLDER")
    path = page_path(out, warehouse, name)
    if figures:
        check_writable(figures / "figure")  # which is a folder, or can be made
    shown.begin(f"reading {name}")
    limits = QueryLimits(memory_mib=MEMORY_MIB)
    content = read_report(Analytics(warehouse, limits), name, against)
    runs = content.runs
    begins = [part.strip() for part in only.split(",") if part.strip()]
    drawn = select_figures(content.figures, begins) if figures else []
    shown.begin("writing the page")
    write_page(content, path, f"Shockwave: {content.title}")
    shown.begin("drawing figures")
    files = write_figures(drawn, figures, [*map(ImageFormat, chosen)]) if figures else []
    size, names = path.stat().st_size, [str(file) for file in files]
    row = {"report": str(path), "bytes": size, "runs": runs, "figures": names}
    text = f"{path}: {size / 1e6:.1f} MB" + f"\n{figures}: {counted(len(files), 'file')}" * bool(
        files
    )
    print_result(row, text, as_json)
