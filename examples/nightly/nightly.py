"""A campaign every night, and a report about it; prefect.yaml beside this file schedules it."""

from pathlib import Path
from typing import Any

from prefect import flow
from prefect.client.schemas import State

from flows.campaigns.campaign import campaign
from flows.campaigns.plan import read_campaign
from flows.deployments.forms import ReportForm
from flows.deployments.reporting import report


@flow(name="nightly", flow_run_name="nightly {file}")
def nightly(file: Path, warehouse: Path | None = None) -> State[Any]:
    """Run the campaign of a file, then write a report; finished cells do not run again."""
    name = campaign(read_campaign(file), warehouse=warehouse)
    return report(ReportForm(about=name), warehouse, return_state=True)
