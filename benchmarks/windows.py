"""Recorded window problems of the published system, round by round.

A file has a JSON object per line: `seq` in the recording, `ngpus`, `round_index` since the start,
`future_nrounds` of the window, `round_duration` in seconds, `k` (weight of the longest remaining
run time), `lam` and `rhomax` (a job's weight is ρ^lam above rhomax, else 1), `logapx_bases`
(knots of the logarithm: 0, 0.2, …, 1), `log_zero` (1e-6), `jobs`, and perhaps
`reference.objective` and `reference.build_and_solve_s` of the published system.

A job has `jobid`, `nworkers` (scale factor), `epochs`, `epoch_progress` (epochs trained), the
predicted `epoch_dur` and `remaining` run time in seconds, and `finish_time_objective` on the
run's clock. With N jobs on G GPUs, ρ = (clock + remaining / min(1, G/N)) / finish_time_objective.
A job with less than a round left gets lam = 100.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import InputError
from solver.window.market import LOG_KNOTS, LOG_ZERO, WindowMarket
from solver.window.published import HEAVIEST, make_published_market

SMALLEST, LARGEST = 1e-9, 1e12
"""Bounds on plausible seconds and counts. Engineering bounds."""

LONGEST_WINDOW = 10_000
"""Upper bound on the rounds of a window, since a bid is a table over them. An engineering bound."""


@dataclass(frozen=True)
class WindowProblem:
    """A recorded problem as a market, with the published system's result.

    Attributes:
        seq: Position in the recording.
        market: The weighted problem.
        reference_objective: Objective that the published system reached, if recorded.
        reference_seconds: Time of its model build and solve, if recorded.
    """

    seq: int
    market: WindowMarket
    reference_objective: float | None
    reference_seconds: float | None


def read_windows(path: Path) -> Iterator[WindowProblem]:
    """Read recorded window problems one by one.

    Raises:
        InputError: The file or a line cannot be read, or there is none; names line and field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(str(path), str(reason), "give a file of window problems") from None
    if not text.strip():
        raise InputError(str(path), "holds no window problems", "give a file with at least one")
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        place = f"{path}:{number}"
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise InputError(place, f"not JSON ({error})", "correct the line") from None
        yield _problem(_Fields(place, document))


class _Fields:
    """The fields of a JSON object; reading a wrong one names it.

    Args:
        place: Where the object is.
        document: What should be an object.
    """

    def __init__(self, place: str, document: Any) -> None:
        self.place = place
        if not isinstance(document, dict):
            raise InputError(place, "not a JSON object", "correct the line")
        self._document = document

    def get(self, name: str) -> Any:
        """A field that must be there."""
        if name not in self._document:
            raise InputError(self.place, f"missing field {name!r}", "add it")
        return self._document[name]

    def number(self, name: str, least: float = 0.0, most: float = LARGEST) -> float:
        """A number in a range."""
        value = self.get(name)
        if type(value) not in (int, float) or not least <= value <= most:
            raise InputError(
                f"{self.place}, {name}",
                f"{value!r} is not a number from {least:g} to {most:g}",
                "correct the field",
            )
        return float(value)

    def count(self, name: str, least: int = 0, most: float = LARGEST) -> int:
        """A whole number in a range."""
        value = self.number(name, least, most)
        if not value.is_integer():
            raise InputError(f"{self.place}, {name}", f"{value} is not whole", "correct the field")
        return int(value)

    def rows(self, name: str) -> "list[_Fields]":
        """A list of objects, at least one."""
        value = self.get(name)
        if not isinstance(value, list) or not value:
            raise InputError(f"{self.place}, {name}", "not a list of jobs", "give at least one job")
        return [_Fields(f"{self.place}, {name}[{n}]", row) for n, row in enumerate(value)]

    def reference(self, name: str) -> float | None:
        """A number of the part `reference`, which may be missing, whole or in parts."""
        part = _Fields(f"{self.place}, reference", self._document.get("reference") or {})
        return part.number(name, least=-LARGEST) if name in part._document else None


def _problem(line: _Fields) -> WindowProblem:
    """The problem as a market; see `make_published_market`."""
    for field, value in (("logapx_bases", list(LOG_KNOTS)), ("log_zero", LOG_ZERO)):
        if line.get(field) != value:
            raise InputError(
                f"{line.place}, {field}", f"{line.get(field)!r} is not {value}", "correct the field"
            )
    seq, gpus = line.count("seq"), line.count("ngpus", least=1)
    seconds = line.number("round_duration", SMALLEST)
    rounds = line.count("future_nrounds", 1, LONGEST_WINDOW)
    now = line.count("round_index") * seconds
    power, limit = line.number("lam"), line.number("rhomax")
    jobs = line.rows("jobs")
    epochs = np.array([job.count("epochs", least=1) for job in jobs], dtype=np.float64)
    done = np.minimum([job.number("epoch_progress") for job in jobs], epochs)
    epoch_seconds = np.array([job.number("epoch_dur", SMALLEST) for job in jobs])
    remaining = np.array([job.number("remaining") for job in jobs])
    targets = np.array([job.number("finish_time_objective", SMALLEST) for job in jobs])
    ids = [job.count("jobid") for job in jobs]
    for place, number in enumerate(ids):
        if number in ids[:place]:
            raise InputError(jobs[place].place, f"jobid {number} is there twice", "mend jobid")
    market, weights = make_published_market(
        gpus=gpus,
        job_ids=ids,
        gangs=[job.count("nworkers", 1, gpus) for job in jobs],
        epochs=epochs,
        epochs_done=done,
        epoch_seconds=epoch_seconds,
        remaining=remaining,
        finish_objectives=targets,
        clock_seconds=now,
        round_seconds=seconds,
        window=rounds,
        regularizer=line.number("k"),
        fairness_power=power,
        fairness_limit=limit,
    )
    if weights.max() > HEAVIEST:
        raise InputError(
            jobs[int(weights.argmax())].place,
            f"weight {weights.max():.3g} is too large",
            "mend remaining or finish_time_objective",
        )
    return WindowProblem(
        seq=seq,
        market=market,
        reference_objective=line.reference("objective"),
        reference_seconds=line.reference("build_and_solve_s"),
    )
