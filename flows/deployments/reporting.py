"""Report as a flow: writes the page, and shows a link and figures in Prefect's UI."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefect import flow, task
from prefect.artifacts import create_image_artifact, create_link_artifact
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas import State
from prefect.states import Completed

from flows.deployments.artifacts import show_headlines
from flows.deployments.forms import ReportForm
from flows.prefect_server.blocks import WarehouseField, find_warehouse
from flows.prefect_server.command import REPORTS
from flows.prefect_server.crashes import claim
from flows.prefect_server.failures import make_failed_state
from flows.runs.extras import require
from predictor.errors import ShockwaveError
from tasks.prefect_tasks import RETRIED
from warehouse.analytics.questions import Analytics

MOST_FIGURES = 4
"""Most figures shown in the UI; the page has all. A choice of layout."""


@dataclass(frozen=True)
class Written:
    """A written report.

    Attributes:
        page: Path of its HTML page.
        figures: Paths of its first figures, as PNG.
    """

    runs: Sequence[str]
    page: Path
    figures: Sequence[Path]


@task(
    name="write report",
    task_run_name="write report about {form.about}",
    tags=["shockwave", "report"],
    cache_policy=NO_CACHE,
    **RETRIED,
)
def write_report(form: ReportForm, warehouse: Path) -> Written:
    """Write the page and its first figures to the warehouse's `reports`."""
    from warehouse.report import page_path, read_report, write_figures, write_page
    from warehouse.report.paper import ImageFormat

    path = page_path(None, warehouse, form.about)
    content = read_report(Analytics(warehouse), form.about, form.against or None)
    page = write_page(content, path, form.title or f"About {form.about}")
    drawn = [replace(figure, choices={}) for figure in content.figures if figure.chart is not None]
    files = write_figures(drawn[:MOST_FIGURES], path.with_suffix(""), [ImageFormat.PNG])
    return Written(content.runs, page, files)


@flow(
    name="report",
    description="Write one self-contained page about runs or a campaign, and link to it.",
    flow_run_name="report about {form.about}",
    on_running=[claim],
)
def report(form: ReportForm, warehouse: WarehouseField = None) -> State[Any]:
    """Write a report and show it.

    Args:
        form: The runs or the campaign, the policy that others are compared with, and the title.
        warehouse: Folder that keeps all runs; by default that of a block.

    Returns:
        Completed with the page's path; failed with the reason.
    """
    warehouse = find_warehouse(warehouse).absolute()
    try:
        require("report", "report")
        from warehouse.report import report_name

        key = report_name(form.about)
        written = write_report(form, warehouse)
        show_headlines(warehouse, written.runs, key=f"figures-{key}", title=f"About {form.about}")
    except ShockwaveError as error:
        return make_failed_state(form.named(error))
    create_link_artifact(
        _address(written.page),
        link_text=form.title or f"Report about {form.about}",
        key=f"report-{key}",
        description=str(written.page),
    )
    for figure in written.figures if _served(written.page) else ():
        create_image_artifact(_address(figure), key=f"{figure.stem}-{key}", description=figure.stem)
    return Completed(message=str(written.page), data=str(written.page))


def _served(file: Path) -> bool:
    """Return whether the server serves the file."""
    folder = os.environ.get(REPORTS)
    return folder is not None and file.is_relative_to(folder)


def _address(file: Path) -> str:
    """Return a file's link: relative to the UI's host if the server serves it, else by file URI."""
    if _served(file):
        return f"/reports/{file.relative_to(os.environ[REPORTS]).as_posix()}"
    return file.as_uri()
