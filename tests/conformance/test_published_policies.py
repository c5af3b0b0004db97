"""The policies of the published comparison, run as published, reproduce the published results."""

import math
from pathlib import Path

import pytest

from flows.runs import simulation
from harness import conformance
from harness.conformance import CASES, TOLERANCES, Case

SMALL, LARGE = CASES

RUNS = [(SMALL, list(TOLERANCES)), (LARGE, ["shockwave-published"])]
"""The larger trace only with the policy that has other parameters there."""


@pytest.mark.parametrize(("case", "policies"), RUNS, ids=[case.name for case, _ in RUNS])
def test_published_policies_get_the_published_figures(
    data: Path, monkeypatch: pytest.MonkeyPatch, case: Case, policies: list[str]
) -> None:
    monkeypatch.setattr(conformance, "CASES", (case,))  # each in whichever process has no work left
    monkeypatch.setattr(conformance, "TOLERANCES", {name: TOLERANCES[name] for name in policies})
    monkeypatch.setattr(simulation, "DELAY_SECONDS", math.inf)  # its records go with it
    rows = list(conformance.check_conformance(data))
    assert [row for row in rows if not row["ok"]] == []
    assert [(row["trace"], row["policy"]) for row in rows] == [
        (case.name, policy) for policy in policies
    ]
    for row in rows:
        if row["policy"] in ("gandiva-fair", "allox"):  # by nothing but the simulator's semantics
            for figure in ("makespan_s", "mean_jct_s"):
                assert abs(float(str(row[figure])) - float(str(row[f"{figure}_published"]))) < 0.001
