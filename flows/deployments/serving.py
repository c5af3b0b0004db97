"""The server of deployments and alerts: `python -m flows.deployments.serving WAREHOUSE`."""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from prefect.runner import Runner

from flows.deployments.alerting import make_automations, watch
from flows.deployments.deployments import read_deployments
from flows.prefect_server.blocks import save_warehouse
from flows.prefect_server.children import READY, end_with_parent
from flows.prefect_server.crashes import watch_processes
from flows.prefect_server.logs import start_log
from flows.scheduler.options import DATABASE_URL

POLL_SECONDS = 2.0
"""Interval between polls of the server for scheduled flow runs. An engineering choice."""

MOST_AT_ONCE = 4
"""Most concurrent flow runs, each a process with its own solver; others wait. An engineering
bound."""


class Serving(Runner):
    """A runner that also cancels its flow runs when it is stopped."""

    def handle_sigterm(self, *args: Any, **kwargs: Any) -> None:
        """Stop gracefully: Prefect's own handler leaves flow runs in the state Running."""
        self.execute_in_background(self.astop)


def main(warehouse: Path) -> None:
    """Serve the deployments of a warehouse and report its alerts, until stopped."""
    end_with_parent()
    start_log()
    runner = Serving(
        name="shockwave",
        query_seconds=POLL_SECONDS,
        limit=MOST_AT_ONCE,
        pause_on_shutdown=False,  # so that flow runs scheduled meanwhile run at the next start
    )
    for deployment in read_deployments():
        runner.add_deployment(deployment.serve(warehouse))
    watch_processes()
    save_warehouse(warehouse)
    make_automations()
    watch(warehouse, os.environ.get(DATABASE_URL, ""))
    asyncio.run(_serve(runner))


async def _serve(runner: Runner) -> None:
    """Serve until stopped; report readiness once flow runs can start."""
    reporting = asyncio.create_task(_report_ready(runner))
    await runner.start()
    reporting.cancel()


async def _report_ready(runner: Runner) -> None:
    while not runner.started:
        await asyncio.sleep(POLL_SECONDS / 10)
    print(READY, flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
