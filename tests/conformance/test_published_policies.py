"""The policies of the published comparison, run as published, get what was published."""

from pathlib import Path

from flows.judging.conformance import CASES, TOLERANCES, conformance


def test_published_policies_get_the_published_figures(data: Path) -> None:
    rows = list(conformance(data))
    assert [(row["trace"], row["policy"]) for row in rows] == [
        (case.name, policy) for case in CASES for policy in TOLERANCES
    ]
    assert [row for row in rows if not row["ok"]] == []
    for row in rows:  # these two depend on nothing but the simulator's semantics
        if row["policy"] in ("gandiva-fair", "allox"):
            for figure in ("makespan_s", "mean_jct_s"):
                assert abs(float(str(row[figure])) - float(str(row[f"{figure}_published"]))) < 0.001
