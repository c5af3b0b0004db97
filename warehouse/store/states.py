"""Files with the states of large runs at some of their rounds; all can be removed at any time.

WAREHOUSE/states/RUN.000512    compressed; the state before round 512
"""

import re
from functools import partial
from pathlib import Path

import pyarrow as pa

from warehouse.store.durable import write_file, writing
from warehouse.store.folder import STATES, names_in
from warehouse.store.ledger import enter, enter_file, read_entered


def write_state(warehouse: Path, run: str, number: int, content: bytes) -> None:
    """Enter the state of a run before a round in the ledger, then write it.

    Raises:
        OSError: It cannot be written.
        WarehouseError: The ledger cannot be written.
    """
    memory = pa.BufferOutputStream()
    with pa.CompressedOutputStream(memory, "zstd") as compressed:
        compressed.write(content)
    path = _path(warehouse, run, number)
    with writing(warehouse):
        path.parent.mkdir(exist_ok=True)
        with write_file(path, partial(enter_file, warehouse)) as file:
            file.write(memory.getvalue())


def list_states(warehouse: Path, run: str) -> list[int]:
    """Return the rounds of a run before which its state was kept, ascending."""
    names = (re.fullmatch(r"(.+)\.(\d{6,18})", name) for name in names_in(warehouse / STATES))
    return sorted(int(found[2]) for found in names if found and found[1] == run)


def read_state(warehouse: Path, run: str, number: int) -> bytes:
    """Return the state of a run before a round; empty unless it is as the ledger has it."""
    content = read_entered(warehouse, _path(warehouse, run, number))
    try:
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as file:
            return bytes(file.read())
    except OSError:
        return b""


def remove_states(warehouse: Path, run: str) -> None:
    """Remove the states of a run.

    Raises:
        OSError: One cannot be removed.
    """
    paths = [_path(warehouse, run, number) for number in list_states(warehouse, run)]
    for path in paths:
        path.unlink(missing_ok=True)
    if paths:
        enter(warehouse, warehouse / STATES, dict.fromkeys([path.name for path in paths], ""))


def _path(warehouse: Path, run: str, number: int) -> Path:
    return warehouse / STATES / f"{run}.{number:06d}"
