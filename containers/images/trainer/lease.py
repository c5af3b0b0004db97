"""The lease that may write to a job's folder.

A scheduler that lost contact to a container may start the job elsewhere. It names the current lease
in the job's folder; a container of another lease exits before it writes.
"""

import os
from pathlib import Path

from trainer.errors import LeaseLost

FILE = "lease"
VARIABLE = "SHOCKWAVE_LEASE"
"""Environment variable with this container's lease; without it no other container writes."""


def check_lease(folder: Path) -> None:
    """Refuse to write under a lease that is not this container's.

    Raises:
        LeaseLost: Another lease holds.
    """
    own = os.environ.get(VARIABLE)
    if not own:
        return
    try:
        holds = (folder / FILE).read_text(encoding="utf-8").strip()
    except OSError:
        return  # no lease is named
    if holds != own:
        raise LeaseLost(f"{folder / FILE}: lease {holds} holds, not {own}; leaving")
