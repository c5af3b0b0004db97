"""A sample of the edits of `harness.attacks.tampering`: each kind once, of bytes a few."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from harness.attacks import tampering
from harness.attacks.edits import BYTES, Target
from warehouse.store import warehouse_audit

pytestmark = pytest.mark.slow
EDITS = tampering.kinds()
OF_BYTES = [kind for kind in EDITS if kind.rpartition(", ")[2] in {way.__name__ for way in BYTES}]
SAMPLE = [kind for kind in EDITS if kind not in OF_BYTES] + OF_BYTES[::5]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warehouse_audit, "WAIT_SECONDS", 0.0)
        yield tampering.make(tmp_path_factory.mktemp("made") / "w")


@pytest.mark.parametrize("kind", SAMPLE)
def test_an_edit_is_found(made: Target, tmp_path: Path, kind: str) -> None:
    assert tampering.found(made, tmp_path / "w", kind, EDITS[kind], Random(3))
