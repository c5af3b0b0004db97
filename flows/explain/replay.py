"""Replay recorded rounds: decide them again and report differences."""

from collections.abc import Callable
from pathlib import Path

from flows.explain.forks import check_own, take_over
from flows.runs.code_version import describe_changed_plugins
from flows.runs.simulation import prepare
from flows.runs.start import check_recorded
from predictor.errors import InputError
from tasks.replay import Comparison, Recording
from tasks.round import run_round
from warehouse.store.reader import Reader


def replay(
    name: str,
    warehouse: Path,
    *,
    only: int | None = None,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Comparison:
    """Predict and solve recorded rounds again from their records.

    Args:
        name: The run.
        warehouse: The warehouse that holds it.
        only: The only round to replay, or None for all rounds.
        progress: Receives the number of replayed rounds, and of all rounds.

    Raises:
        ShockwaveError: There is no such run or round, or its records are damaged.
    """
    reader = Reader(warehouse)
    start, recorded = reader.start(name), reader.records(name)
    header = start.header
    if only is not None and not 0 <= only < len(recorded):
        raise InputError(
            "round", f"run {name!r} has no round {only}", f"give one below {len(recorded)}"
        )
    check_own(name, header, only)
    check_recorded(name, header.settings)
    remarks = describe_changed_plugins(header.settings, reader.packages(name))
    comparison = Comparison(recorded, remarks=remarks)
    first = header.settings.first_own_round if only is None else only
    rounds = [record for record, _ in recorded[: None if only is None else only + 1]]
    run = prepare(start, recorded=True).on(Recording(rounds[first:]), comparison, name)
    for record, digest in recorded[: len(rounds)]:
        progress(record.round, len(rounds))
        state = run.state
        if record.round >= first:
            run.state = take_over(state, header.settings)
            run_round(run)
        if record.round != only:
            run.state = state
            run.follow(record, digest)
    comparison.complete = run.finished
    return comparison
