"""The policies of the published comparison, run as published, get what was published."""

from pathlib import Path

import pytest

from flows.judging import conformance
from flows.judging.conformance import CASES, TOLERANCES, Case


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("policy", list(TOLERANCES)[::-1])
def test_published_policies_get_the_published_figures(
    data: Path, monkeypatch: pytest.MonkeyPatch, policy: str, case: Case
) -> None:
    monkeypatch.setattr(conformance, "CASES", (case,))
    monkeypatch.setattr(conformance, "TOLERANCES", {policy: TOLERANCES[policy]})
    (row,) = conformance.conformance(data)
    assert (row["trace"], row["policy"], row["ok"]) == (case.name, policy, True), row
    if policy in ("gandiva-fair", "allox"):  # by nothing but the simulator's semantics
        for figure in ("makespan_s", "mean_jct_s"):
            assert abs(float(str(row[figure])) - float(str(row[f"{figure}_published"]))) < 0.001
