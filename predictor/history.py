"""Trajectories of finished jobs, from which the prior of later jobs is learned."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice

import numpy as np

from predictor.arrays import Bools, Floats, Ints
from predictor.belief import Belief, find_changes
from predictor.durations import Shares
from predictor.job import JobSpec, Mode
from predictor.throughput import Throughput, reachable_batch_sizes

SAME_KIND, SAME_MODEL, SAME_MODE = 8, 8, 16
"""Number of relatives of a job: the latest trajectories of its kind, of its model, of its mode. An
engineering bound; no sweep is recorded."""

RELATIVES = SAME_KIND + SAME_MODEL + SAME_MODE
"""Relatives of a job. Each is a candidate by epochs, and one by shares."""

KEPT = 512
"""Latest trajectories kept per mode. An engineering bound on memory; no sweep is recorded."""

Kind = tuple[str, int, int]
"""Model, initial batch size and scale factor."""


@dataclass(frozen=True, slots=True)
class Trajectory:
    """The trajectory of a finished job.

    Attributes:
        kind: Model, initial batch size and GPUs.
        changes: Epochs at which its batch size changed, ascending.
        at_the_top: Whether it ended at the largest batch size of a GNS job, so that no further
            change was possible.
        slowness: Log of measured over profiled time per step; None without measurements.
    """

    kind: Kind
    mode: Mode
    epochs: int
    changes: tuple[int, ...]
    at_the_top: bool
    slowness: float | None = None

    @property
    def model(self) -> str:
        """Model family."""
        return self.kind[0]


def build_trajectory(belief: Belief, throughput: Throughput) -> Trajectory:
    """Build the trajectory of a finished job; its slowness is relative to `throughput`."""
    spec, timed = belief.spec, belief.slowness(throughput)
    sizes = reachable_batch_sizes(throughput, spec)
    changed = find_changes(spec, belief.observed, sizes)
    seconds = sum([seconds for _, _, seconds in timed])
    return Trajectory(
        kind=spec.cohort,
        mode=spec.mode,
        epochs=spec.epochs,
        changes=changed,
        at_the_top=spec.mode is Mode.GNS and len(changed) >= len(sizes) - 1,
        slowness=sum([log * seconds for _, log, seconds in timed]) / seconds if timed else None,
    )


@dataclass(frozen=True)
class ModeHistory:
    """The latest trajectories of a mode's finished jobs, at most `KEPT`.

    Attributes:
        trajectories: In the order of their ends.
        counts: Expected number of finished jobs that each mixture component
            (`predictor.posterior.COMPONENTS`) generated: the sum of their posteriors. Empty
            without any.
        dropped: Number of earlier trajectories. A trajectory's number, minus this, is its row.
        of_kind: Numbers of the latest trajectories of a kind, ascending.
        of_model: The same of a model.
    """

    trajectories: tuple[Trajectory, ...] = ()
    counts: tuple[float, ...] = ()
    dropped: int = 0
    of_kind: Mapping[Kind, tuple[int, ...]] = field(default_factory=dict)
    of_model: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def with_counts(self, counts: tuple[float, ...]) -> "ModeHistory":
        """Return the history with new counts."""
        found = replace(self, counts=counts)
        vars(found).update({name: vars(self)[name] for name in _CACHED if name in vars(self)})
        return found

    def after(self, trajectory: Trajectory) -> "ModeHistory":
        """Return the history after another trajectory, with the same counts."""
        number, kind, model = (
            self.dropped + len(self.trajectories),
            trajectory.kind,
            trajectory.model,
        )
        trajectories = (*self.trajectories, trajectory)[-KEPT:]
        dropped = number + 1 - len(trajectories)
        numbers = (*self.of_model.get(model, ()), number)
        found = ModeHistory(
            trajectories,
            self.counts,
            dropped,
            {**self.of_kind, kind: (*self.of_kind.get(kind, ()), number)[-SAME_KIND:]},
            {**self.of_model, model: tuple([at for at in numbers if at >= dropped])},
        )
        if "arrays" in vars(self):  # faster than anew, which takes a millisecond
            gone = dropped - self.dropped
            vars(found)["arrays"] = _append(self.arrays, gone, trajectory)
        return found

    @cached_property
    def arrays(self) -> tuple[Floats, Floats, Bools]:
        """The changes and epochs of the trajectories.

        Epochs of the changes, shape (trajectories + 1, changes), padded with infinity; numbers of
        epochs, and whether each ended at the top, shape (trajectories + 1,). The last row is
        padding, for relatives of index -1.
        """
        found = np.full((1, 0), np.inf), np.ones(1), np.zeros(1, bool)
        for trajectory in self.trajectories:
            found = _append(found, 0, trajectory)
        return found

    def relatives(self, spec: JobSpec) -> Ints:
        """Return the rows of `arrays` that are relatives of a job, shape (`RELATIVES`,).

        Relatives of its kind come first, then of its model, then of its mode. A group that is too
        small is repeated cyclically; an empty group is -1.
        """
        kind, model = spec.cohort, spec.model
        if kind not in self._relatives:
            trajectories, dropped = self.trajectories, self.dropped
            same_kind = (at - dropped for at in reversed(self.of_kind.get(kind, ())))
            same_model = (at - dropped for at in reversed(self.of_model.get(model, ())))
            latest = range(len(trajectories) - 1, -1, -1)
            groups = (
                (SAME_KIND, (row for row in same_kind if row >= 0)),
                (SAME_MODEL, (row for row in same_model if trajectories[row].kind != kind)),
                (SAME_MODE, (row for row in latest if trajectories[row].model != model)),
            )
            self._relatives[kind] = np.concatenate(
                [_filled(most, list(islice(rows, most))) for most, rows in groups]
            )
        return self._relatives[kind]

    def slowness(self, model: str) -> list[float]:
        """List the slowness of a model's trajectories with measurements, in order."""
        rows = (at - self.dropped for at in self.of_model.get(model, ()))
        logs = [self.trajectories[row].slowness for row in rows]
        return [log for log in logs if log is not None]

    @cached_property
    def _relatives(self) -> dict[Kind, Ints]:
        return {}


def _append(
    arrays: tuple[Floats, Floats, Bools], gone: int, trajectory: Trajectory
) -> tuple[Floats, Floats, Bools]:
    """Append a trajectory to `ModeHistory.arrays`, without the first `gone` rows."""
    at, epochs, at_the_top = arrays
    changes = trajectory.changes
    grown = np.full((len(at) + 1 - gone, max(at.shape[1], len(changes))), np.inf)
    grown[:-2, : at.shape[1]] = at[gone:-1]
    grown[-2, : len(changes)] = changes
    return (
        grown,
        np.concatenate([epochs[gone:-1], [float(trajectory.epochs), 1.0]]),
        np.concatenate([at_the_top[gone:-1], [trajectory.at_the_top, False]]),
    )


@dataclass(frozen=True)
class History:
    """Trajectories of finished jobs, and the prior that they imply.

    Attributes:
        modes: By mode, in the order of the first ends.
        shares: Shares of their limits that timed jobs took (`predictor.durations`).
    """

    modes: Mapping[Mode, ModeHistory] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    def of_mode(self, mode: Mode) -> ModeHistory:
        """Return the trajectories of a mode."""
        return self.modes.get(mode, _EMPTY)

    def size(self, mode: Mode) -> int:
        """Return the number of trajectories of a mode."""
        return len(self.of_mode(mode).trajectories)

    def slowness(self, model: str) -> float:
        """Return the mean log of measured over profiled time per step of a model; 0 if untimed."""
        if model not in self._slowness:
            logs = [log for mode in self.modes.values() for log in mode.slowness(model)]
            self._slowness[model] = sum(logs) / len(logs) if logs else 0.0
        return self._slowness[model]

    @cached_property
    def _slowness(self) -> dict[str, float]:
        return {}


_CACHED = "arrays", "_relatives"
_EMPTY = ModeHistory()
NOTHING = History()
"""The empty history."""


def _filled(most: int, rows: list[int]) -> Ints:
    """Repeat rows cyclically up to a length; -1 without rows."""
    return np.array((rows * most)[:most] if rows else [-1] * most)
