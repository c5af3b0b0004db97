"""Commands about a Slurm whose users' jobs Shockwave starts."""

import os
import time
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import Json, Policy, Warehouse
from flows.cli.output import print_rows, say
from flows.runs.settings import DEFAULT_POLICY
from predictor.errors import InputError
from warehouse import DEFAULT_WAREHOUSE

Partition = Annotated[str, typer.Option(help="Partition whose jobs Shockwave starts.")]


def check(partition: Partition, as_json: Json = False) -> None:
    """Check that nothing but Shockwave starts jobs of a Slurm partition."""
    from containers.slurm.commands import Commands
    from containers.slurm.hand_over import check_partition

    findings = check_partition(Commands(), partition)
    print_rows([asdict(finding) for finding in findings], as_json)
    if any(finding.result == "failed" for finding in findings):
        raise typer.Exit(1)


def release_all(
    partition: Partition,
    if_away: Annotated[
        float | None,
        typer.Option(
            min=0, help="Only if no scheduler has run for so many minutes, as a watchdog in cron."
        ),
    ] = None,
    warehouse: Warehouse = DEFAULT_WAREHOUSE,
    as_json: Json = False,
) -> None:
    """Hand the queue back: Slurm itself starts all waiting jobs of a partition.

    Prints the jobs that still wait; exits with 1 if there are any.
    """
    from contextlib import closing

    from containers.leasing.engine import Refused
    from containers.slurm.claim import refuse_others
    from containers.slurm.commands import Commands
    from containers.slurm.hand_over import release_all
    from containers.slurm.parsing import SlurmAway
    from flows.runs.queue_run import name_owner
    from flows.scheduler.options import DATABASE_URL
    from warehouse.inbox.inbox import Inbox
    from warehouse.inbox.lease import Leases
    from warehouse.store.reader import Reader

    owner = None
    if if_away is not None:
        url = os.environ.get(DATABASE_URL, "")
        with closing(Leases(warehouse, url)) as leases:
            away = leases.away_seconds()
        if away is None:
            problem = f"{warehouse.absolute()} has had no service"
            remedy = (
                f"give the service's --warehouse, and its --database-url, if any, in {DATABASE_URL}"
            )
            raise InputError("warehouse", problem, remedy)
        if away < 60.0 * if_away or not away:
            say(f"A scheduler ran {away:.0f} s ago: nothing was released.", err=True)
            return
        with Inbox(warehouse, url) as inbox:
            owner = name_owner(Reader(warehouse), inbox.run) if inbox.run else ""
    commands = Commands()
    try:
        if owner is not None:
            refuse_others(commands, partition, owner)
        left = release_all(commands, partition, time.time())
    except (SlurmAway, Refused) as error:
        remedy = "see shockwave slurm check"
        raise InputError("slurm", f"jobs were not released: {error}", remedy) from None
    rows = [{"job": job.id, "user": job.user, "reason": job.reason} for job in left]
    print_rows(rows, as_json)
    if rows:
        raise typer.Exit(1)
    say(f"All jobs of partition {partition} have QOS run.", err=True)


def advise(
    partition: Partition,
    policy: Policy = DEFAULT_POLICY,
    apply: Annotated[bool, typer.Option(help="Set the Nice of the jobs in Slurm.")] = False,
    as_json: Json = False,
) -> None:
    """Print the order in which a policy would start a partition's waiting jobs.

    Slurm stays in charge. With --apply, as an operator, its order becomes that of the policy; exits
    with 1 if Slurm refuses it for a job.
    """
    from containers.slurm.commands import Commands
    from flows.runs.queue_advice import advise, set_nice
    from flows.scheduler.options import ServiceOptions

    commands, options = Commands(), ServiceOptions(policy=policy, partition=partition)
    advice, losing = advise(commands, partition, options.make_start(), time.time())
    print_rows([asdict(one) for one in advice], as_json)
    moved = sum(one.slurm != one.shockwave for one in advice)
    gives = f"; it would preempt {', '.join(losing)}" if losing else ""
    say(f"{policy} has another place for {moved} of {len(advice)} jobs{gives}.", err=True)
    refusals = set_nice(commands, advice) if apply else {}
    for job, said in refusals.items():
        say(f"job {job}: {said}", err=True)
    if refusals:
        raise typer.Exit(1)
