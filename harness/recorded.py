"""How far the only run of a warehouse is, while other processes write it."""

from pathlib import Path

from warehouse.store.folder import run_folders
from warehouse.store.parts import rounds_of


def count_rounds(warehouse: Path) -> int:
    """Rounds recorded so far of a run that has not ended."""
    names = (path.name for at in run_folders(warehouse) for path in at.iterdir())
    return max((rounds.stop for name in names if (rounds := rounds_of(name))), default=0)
