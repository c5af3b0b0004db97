"""Audit of a run from an untrusted source, in a process of bounded memory.

A Parquet file of a few KiB can declare any number of rows, and can declare false sizes. The process
is `python -m warehouse.store.bounded_audit WAREHOUSE RUN MIB`.
"""

import resource
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import orjson

from predictor.errors import InputError, ShockwaveError
from warehouse.store.audit import Audit, AuditFinding, audit
from warehouse.store.ledger import WarehouseLedger

USUAL_MIB = 2048
"""Default memory limit of the process in MiB. An engineering bound."""


def audit_within(memory_mib: int, warehouse: Path, run: str, place: str) -> Audit:
    """Audit a run without a ledger; `place` is its origin, for errors.

    Raises:
        InputError: The audit exceeds its memory, or the run cannot be read.
    """
    command = [sys.executable, "-P", "-m", __name__, str(warehouse), run, str(memory_mib)]
    ran = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if ran.returncode:
        problem = f"cannot be audited in {memory_mib:,} MiB of memory"
        raise InputError(place, problem, "give it more memory if you trust where it is from")
    row = orjson.loads(ran.stdout)
    if "remedy" in row:
        raise InputError(place, f"is not whole ({row['problem']})", row["remedy"])
    return Audit(**{**row, "findings": tuple(AuditFinding(**found) for found in row["findings"])})


def _main(warehouse: str, run: str, memory_mib: str) -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (int(memory_mib) * 2**20, hard))
    try:
        row = asdict(audit(Path(warehouse), run, ledger=WarehouseLedger()))
    except ShockwaveError as error:
        row = {"problem": f"{error.place}: {error.problem}", "remedy": error.remedy}
    sys.stdout.buffer.write(orjson.dumps(row))


if __name__ == "__main__":
    _main(*sys.argv[1:])
