"""Decisions and the layout of records stay as `golden.txt` has them.

    STORE=1 python -m pytest tests/stored

stores them anew, after a change that is meant to alter them. If fields of records changed, raise
`VERSION` in `tasks/layout.py` as well.
"""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from flows.runs.start import make_start
from predictor.rows import hash_content
from solver.fidelity import Fidelity
from solver.policies import POLICIES, for_several_pools
from tasks.layout import VERSION
from tasks.record import RuntimeKind, Start
from tests.runs import make, mixed, tiny
from warehouse.store.files import HEADER, ROUND, WORKLOAD

GOLDEN = Path(__file__).parent / "golden.txt"


def starts() -> Iterator[tuple[str, Start]]:
    """A small run of each policy, on one GPU type and on several, and as containers run."""
    for policy in POLICIES:
        for fidelity in Fidelity:
            start = tiny("fifo", jobs=6)
            settings = replace(start.header.settings, policy=policy, fidelity=fidelity)
            yield f"{policy} {fidelity}", make_start(start.workload, settings)
        if policy in for_several_pools():
            yield f"{policy} on several types", mixed(policy, jobs=6, together=0.6)
    for policy in ("srtf", "shockwave"):
        kind = RuntimeKind.FAITHFUL
        yield f"{policy} {kind}", mixed(policy, jobs=6, runtime=kind, opportunistic=True)


def decided(start: Start) -> str:
    """A hash of which job held which GPUs in which round."""
    rounds = make(start).records
    leases = [[(lease.job_id, lease.gpus) for lease in record.leases] for record in rounds]
    return hash_content([[record.clock_seconds for record in rounds], leases])[:16]


@pytest.mark.slow
def test_decisions_and_columns_are_as_they_were_stored() -> None:
    columns = [str(schema) for schema in (HEADER, ROUND, WORKLOAD)]
    lines = [f"layout {VERSION}: {hash_content(columns)[:16]}"]
    lines += [f"{name}: {decided(start)}" for name, start in starts()]
    if os.environ.get("STORE"):
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == GOLDEN.read_text(encoding="utf-8").splitlines(), "STORE=1 stores them"
