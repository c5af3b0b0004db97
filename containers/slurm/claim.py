"""A service's claim to a partition, which its scheduler shows in Slurm.

It is a reservation of the year 2099, so that no job is in its way: only operators can make one, and
its name says whose it is. It stays when the service ends, whose run may be resumed, until the queue
is handed back.
"""

import re

from containers.leasing.engine import Refused
from containers.slurm.commands import Commands
from predictor.errors import InputError

_OURS = "shockwave-"
_DUPLICATE = "Duplicate reservation name"
_FAR = ("StartTime=2099-01-01T00:00:00", "Duration=1")


def claim_partition(commands: Commands, partition: str, owner: str, node: str) -> None:
    """Claim a partition for a run; `owner` is a name that no other run has.

    Without one, nothing is claimed, and only others' claims are refused. `node` is one of its
    nodes, which may be down.

    Raises:
        InputError: Another run has it.
        Refused: Slurm refuses the claim.
        SlurmAway: It does not answer.
    """
    own = f"{_OURS}{owner}"
    refuse_others(commands, partition, owner)
    if not owner:
        return
    asked = (f"ReservationName={own}", f"PartitionName={partition}", f"Nodes={node}")
    try:
        # They overlap, so that all services of a partition could have one.
        flags = ("Users=root", "Flags=IGNORE_JOBS,OVERLAP")
        commands.call("scontrol", "create", "reservation", *asked, *_FAR, *flags)
    except Refused as refused:
        if _DUPLICATE not in str(refused):
            raise
    try:  # another service may have made its own in the meantime
        refuse_others(commands, partition, owner)
    except InputError:
        _delete(commands, own)
        raise


def refuse_others(commands: Commands, partition: str, owner: str) -> None:
    """Refuse a partition that a run other than its owner has claimed.

    Raises:
        InputError: Another run has it.
        Refused: Slurm refuses to tell.
        SlurmAway: It does not answer.
    """
    for other in list_claims(commands, partition):
        if other != f"{_OURS}{owner}":
            remedy = f"end that service, then shockwave slurm release-all --partition {partition}"
            raise InputError("partition", f"is claimed by another service: {other}", remedy)


def list_claims(commands: Commands, partition: str) -> list[str]:
    """Return the names of the reservations that claim a partition.

    Raises:
        Refused: Slurm refuses to tell.
        SlurmAway: It does not answer.
    """
    text = commands.call("scontrol", "--oneliner", "show", "reservation")
    found = re.findall(r"^ReservationName=(\S+) .* PartitionName=(\S+) ", text, re.MULTILINE)
    return [name for name, of in found if of == partition and name.startswith(_OURS)]


def _delete(commands: Commands, name: str) -> None:
    commands.call("scontrol", "delete", f"ReservationName={name}")


def give_up_claims(commands: Commands, partition: str) -> None:
    """Delete all claims to a partition.

    Raises:
        Refused: Slurm refuses it.
        SlurmAway: It does not answer.
    """
    for name in list_claims(commands, partition):
        _delete(commands, name)
