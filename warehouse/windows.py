"""Recorded window problems: what the published system met, round by round.

One JSON object a line. `docs/traces.md` describes the fields.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from predictor.errors import InputError
from solver.market import LOG_KNOTS, LOG_ZERO, Market, welfare_market

LAST_ROUND_POWER = 100.0
"""Power of the finish-time ratio for a job with less than a round left to run."""


@dataclass(frozen=True)
class WindowProblem:
    """A recorded problem as a market, with what the published system got.

    Attributes:
        seq: Position in the recording.
        market: The weighted problem.
        reference_objective: Objective that the published system reached, if recorded.
        reference_seconds: What its model build and solve took, if recorded.
    """

    seq: int
    market: Market
    reference_objective: float | None
    reference_seconds: float | None


def read_windows(path: Path) -> Iterator[WindowProblem]:
    """Read recorded window problems one by one.

    Raises:
        InputError: The file or a line cannot be read; names line and field.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise InputError(str(path), str(reason), "give a file of window problems") from None
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield _problem(json.loads(line))
        except json.JSONDecodeError as error:
            raise InputError(f"{path}:{number}", f"not JSON ({error.msg})", "mend it") from None
        except KeyError as error:
            raise InputError(
                f"{path}:{number}", f"missing field {error.args[0]!r}", "add it"
            ) from None
        except (TypeError, ValueError) as error:
            raise InputError(f"{path}:{number}", str(error), "mend the line") from None


def _problem(line: Mapping[str, Any]) -> WindowProblem:
    """The weighted problem that is left when the finish-time constraints cannot hold.

    Weights are ρ^λ where ρ, the projected over the targeted finish time, is above its
    limit (NSDI '23, section 6), else 1.
    """
    for field, value in (("logapx_bases", list(LOG_KNOTS)), ("log_zero", LOG_ZERO)):
        if line[field] != value:
            raise ValueError(f"{field} {line[field]} is not {value}")
    jobs = line["jobs"]

    def column(name: str) -> np.ndarray:
        return np.array([job[name] for job in jobs], dtype=np.float64)

    seconds, gpus = float(line["round_duration"]), int(line["ngpus"])
    epochs, done, epoch_seconds = map(column, ("epochs", "epoch_progress", "epoch_dur"))
    remaining = column("remaining")
    share = min(1.0, gpus / max(len(jobs), 1))
    now = line["round_index"] * seconds
    ratio = (now + remaining / share) / column("finish_time_objective")
    power = np.where(remaining < seconds, LAST_ROUND_POWER, line["lam"])
    elapsed = np.arange(line["future_nrounds"] + 1) * seconds
    run = np.minimum(elapsed, ((epochs - done) * epoch_seconds)[:, None])
    market = welfare_market(
        gpus=gpus,
        regularizer=float(line["k"]),
        job_ids=[job["jobid"] for job in jobs],
        scale_factors=[job["nworkers"] for job in jobs],
        weights=np.where(ratio > line["rhomax"], ratio**power, 1.0),
        progress=(done[:, None] + run / epoch_seconds[:, None]) / epochs[:, None],
        remaining=np.maximum(remaining[:, None] - run, 0.0),
    )
    reference = line.get("reference", {})
    return WindowProblem(
        seq=line["seq"],
        market=market,
        reference_objective=reference.get("objective"),
        reference_seconds=reference.get("build_and_solve_s"),
    )
