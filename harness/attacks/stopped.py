"""A stopped service as a target of attacks."""

from dataclasses import replace
from pathlib import Path

from flows.scheduler.options import ServiceOptions
from flows.scheduler.scheduler import open_run, schedule
from predictor.allocation import Demand
from predictor.job import JobSpec, Mode
from tasks.commands import CommandKind
from warehouse.inbox.inbox import Inbox
from warehouse.inbox.tokens import Role, Tokens


def make_service(warehouse: Path) -> dict[str, str]:
    """Make a stopped service of three rounds; returns the tokens of its API by role.

    It has a running job, a job on hold, a refused job, and two entries not yet taken in.
    """
    job = JobSpec(0, "conv-small", 32, 128, Demand.gang(2), Mode.GNS, 400, 40_000, 0.0, "a")
    options = ServiceOptions(policy="srtf", gpus=4, speed=100_000.0, driver="plain")
    with Inbox(warehouse) as inbox:
        inbox.submit(replace(job, name="x"), key="k1")
        with open_run(warehouse, inbox, options) as run:
            schedule(run, warehouse, rounds=1)
            inbox.submit(replace(job, demand=Demand.gang(1)))
            inbox.command(CommandKind.HOLD, 2)
            inbox.submit(replace(job, demand=Demand.gang(8)))
            schedule(run, warehouse, rounds=2)
        inbox.submit(replace(job, name="x"))
        inbox.command(CommandKind.BUDGET, 1, value=2.0)
    with Tokens(warehouse) as tokens:
        return {
            "reader": tokens.add("ann", Role.READER),
            "tenant": tokens.add("bob", Role.TENANT, "a"),
            "operator": tokens.add("eve", Role.OPERATOR),
        }
