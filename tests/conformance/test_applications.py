"""Tiresias, Optimus and Pollux on measured applications, against Pollux's simulator."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.runs.start import make_start
from flows.runs.workload_source import Source
from harness.conformance_of_applications import TOLERANCES, make_published_settings
from solver.fidelity import Fidelity
from tests.runs import make

PUBLISHED = {"tiresias": 3_469.69, "optimus": 5_301.88, "pollux": 2_446.13}
"""Mean JCT of workload 1.0-6 in the authors' runs, in seconds."""


@pytest.mark.slow
@pytest.mark.parametrize("policy", PUBLISHED)
def test_the_published_mean_jct(data: Path, policy: str) -> None:
    folder = data.parent / "pollux"
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    trace = folder / "workloads" / "1.0-6.csv"
    workload = Source(trace=trace, applications=folder).open(gpu_types=("t4",))
    settings = make_published_settings(policy)
    if policy == "pollux":  # divided exactly: the search takes minutes
        settings = replace(settings, fidelity=Fidelity.FAIR)
    made = make(make_start(workload, settings))
    arrival = {spec.job_id: spec.arrival_seconds for spec in made.specs}
    ends = [event for record in made.records for event in record.finished]
    jcts = [event.at_seconds - arrival[event.job_id] for event in ends]
    assert len(jcts) == 160
    mean = sum(jcts) / len(jcts)
    assert TOLERANCES[policy].accepts("mean_jct_s", mean, PUBLISHED[policy])
