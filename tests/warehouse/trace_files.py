"""A trace with its tables, for tests to spoil."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from predictor.errors import InputError
from tasks.sources import Workload
from warehouse.workloads.trace import COLUMNS, read_workload


@dataclass
class Files:
    """A trace of one LM job with its two tables, to spoil."""

    folder: Path

    def __post_init__(self) -> None:
        self.trace, self.profile = self.folder / "one.trace", self.folder / "speed.json"
        self.regimes = self.folder / "regimes.csv"
        self.write_trace()
        rates = {5: 10.0, 10: 8.0, 80: 2.0}
        self.write_profile(
            {f"('LM (batch size {size})', 1)": {"null": rate} for size, rate in rates.items()}
        )
        self.write_regimes("LM,5,1,0:5;2:10")

    def write_trace(self, **changed: str) -> None:
        self.trace.write_text(job_line(**changed) + "\n")

    def write_profile(self, table: dict[str, object]) -> None:
        self.profile.write_text(json.dumps({"v100": table}))

    def write_regimes(self, *rows: str) -> None:
        header = "model,initial_batch_size,scale_factor,schedule"
        self.regimes.write_text("\n".join([header, *rows]) + "\n")

    def read(self) -> Workload:
        return read_workload(self.trace, self.profile, self.regimes)

    def refusal(self) -> str:
        """The message, with the temporary folder left out."""
        with pytest.raises(InputError) as caught:
            self.read()
        return str(caught.value).replace(f"{self.folder}/", "")


def job_line(**changed: str) -> str:
    """A GNS job of four epochs of 11,935 steps."""
    fields = dict.fromkeys(COLUMNS, "-") | {
        "job_type": "LM (batch size 5)",
        "total_steps": "47740",
        "scale_factor": "1",
        "mode": "gns",
        "priority_weight": "1",
        "arrival": "0",
    }
    return "\t".join((fields | changed).values())
