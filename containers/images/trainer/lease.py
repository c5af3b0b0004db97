"""The lease that may write to a job's folder.

A scheduler that loses contact with a container may start the job elsewhere. The job's folder names
the current lease; containers of other leases exit before they write.
"""

import os
from pathlib import Path

from trainer.errors import LeaseLost

FILE = "lease"
VARIABLE = "SHOCKWAVE_LEASE"
"""Environment variable with this container's lease; if unset, no lease is checked."""


def check_lease(folder: Path) -> None:
    """Refuse to write under a lease other than this container's.

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
