"""Commands about a Slurm whose users' jobs Shockwave starts."""

import time
from dataclasses import asdict
from typing import Annotated

import typer

from flows.cli.options import Json
from flows.cli.output import print_rows, say
from predictor.errors import InputError

Partition = Annotated[str, typer.Option(help="Partition whose jobs Shockwave starts.")]


def check(partition: Partition, as_json: Json = False) -> None:
    """Check that nothing but Shockwave starts jobs of a Slurm partition."""
    from containers.slurm.commands import Commands
    from containers.slurm.hand_over import check_partition

    findings = check_partition(Commands(), partition)
    print_rows([asdict(finding) for finding in findings], as_json)
    if any(finding.result == "failed" for finding in findings):
        raise typer.Exit(1)


def release_all(partition: Partition, as_json: Json = False) -> None:
    """Hand the queue back: Slurm itself starts all waiting jobs of a partition.

    Prints the jobs that still wait; exits with 1 if there are any.
    """
    from containers.leasing.engine import Refused
    from containers.slurm.commands import Commands
    from containers.slurm.hand_over import release_all
    from containers.slurm.parsing import SlurmAway

    try:
        left = release_all(Commands(), partition, time.time())
    except (SlurmAway, Refused) as error:
        remedy = "see shockwave slurm check"
        raise InputError("slurm", f"jobs were not released: {error}", remedy) from None
    rows = [{"job": job.id, "user": job.user, "reason": job.reason} for job in left]
    print_rows(rows, as_json)
    if rows:
        raise typer.Exit(1)
    say(f"All jobs of partition {partition} have QOS run.", err=True)
