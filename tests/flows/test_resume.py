"""Runs under policies with memory: interrupted, resumed, replayed."""

from dataclasses import replace
from pathlib import Path

import pytest

from flows.explain.replay import replay
from flows.runs.resuming import resume
from flows.runs.simulation import simulate
from flows.runs.start import make_start
from predictor.errors import Interrupted
from solver.fidelity import Fidelity
from tasks.record import Parameter
from tasks.run import Run
from tests.runs import make, tiny
from warehouse.analytics.questions import Analytics
from warehouse.store.folder import name_of, run_folders

REMEMBER = [
    ("shockwave-published", {}),
    ("themis", {"lease_seconds": 1_800.0}),
    ("allox", {}),
    ("tiresias-las", {"promote": 0.5}),
    ("tiresias-gittins", {"learn": 2.0}),
    ("isolated", {}),
]


@pytest.mark.parametrize("fidelity", Fidelity)
@pytest.mark.parametrize(("policy", "parameters"), REMEMBER, ids=lambda value: str(value))
@pytest.mark.slow
def test_a_policy_remembers_across_an_interruption_and_in_a_replay(
    tmp_path: Path, policy: str, parameters: dict[str, float], fidelity: Fidelity
) -> None:
    start = tiny(policy)
    settings = replace(
        start.header.settings,
        fidelity=fidelity,
        parameters=tuple(Parameter(*item) for item in parameters.items()),
    )
    start = make_start(start.workload, settings)

    def stop_early(run: Run) -> None:
        if run.state.round == 11:
            raise KeyboardInterrupt

    with pytest.raises(Interrupted, match="continue with: shockwave resume"):
        simulate(start, tmp_path, progress=stop_early)
    (run,) = map(name_of, run_folders(tmp_path))
    resume(run, tmp_path)
    undisturbed = make(start).run.state.last_hash
    query = "SELECT last_hash, complete FROM runs"
    assert Analytics(tmp_path).query(query)[1] == [(undisturbed, True)]
    whole = replay(run, tmp_path)
    assert (whole.differences, whole.complete) == ([], True)
    round_13 = replay(run, tmp_path, only=13)  # from what was noted before it
    assert (round_13.differences, round_13.rounds) == ([], 1)
