"""Trajectories of finished jobs, from which the prior of later jobs is learned."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
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
class History:
    """Trajectories of finished jobs, and the prior that they imply.

    Attributes:
        trajectories: By mode, in the order of their ends.
        counts: By mode, expected number of finished jobs that each mixture component
            (`predictor.posterior.COMPONENTS`) generated: the sum of their posteriors.
        shares: Shares of their limits that timed jobs took (`predictor.durations`).
    """

    trajectories: Mapping[Mode, tuple[Trajectory, ...]] = field(default_factory=dict)
    counts: Mapping[Mode, tuple[float, ...]] = field(default_factory=dict)
    shares: Shares = field(default_factory=dict)

    def size(self, mode: Mode) -> int:
        """Return the number of trajectories of a mode."""
        return len(self.trajectories.get(mode, ()))

    def of_mode(self, mode: Mode) -> tuple[Floats, Floats, Bools]:
        """Return the changes and epochs of a mode's trajectories.

        Returns:
            Epochs of the changes, shape (trajectories + 1, changes), padded with infinity;
            numbers of epochs, and whether each ended at the top, shape (trajectories + 1,).
            The last row is padding, for relatives of index -1.
        """
        if mode not in self._arrays:
            trajectories = self.trajectories.get(mode, ())
            width = max((len(trajectory.changes) for trajectory in trajectories), default=0)
            at = np.full((len(trajectories) + 1, width), np.inf)
            for row, trajectory in enumerate(trajectories):
                at[row, : len(trajectory.changes)] = trajectory.changes
            epochs = np.array([*(trajectory.epochs for trajectory in trajectories), 1.0])
            at_the_top = np.array([*(trajectory.at_the_top for trajectory in trajectories), False])
            self._arrays[mode] = at, epochs, at_the_top
        return self._arrays[mode]

    def relatives(self, spec: JobSpec) -> Ints:
        """Return the rows of `of_mode` that are relatives of a job, shape (`RELATIVES`,).

        Relatives of its kind come first, then of its model, then of its mode. A group that is too
        small is repeated cyclically; an empty group is -1.
        """
        key = spec.mode, spec.cohort
        if key not in self._relatives:
            kind, model = spec.cohort, spec.model
            trajectories = self.trajectories.get(spec.mode, ())
            latest = range(len(trajectories) - 1, -1, -1)
            same_model = self._of_model[spec.mode, model]
            groups = (
                (SAME_KIND, (row for row in same_model if trajectories[row].kind == kind)),
                (SAME_MODEL, (row for row in same_model if trajectories[row].kind != kind)),
                (SAME_MODE, (row for row in latest if trajectories[row].model != model)),
            )
            self._relatives[key] = np.concatenate(
                [_filled(most, list(islice(rows, most))) for most, rows in groups]
            )
        return self._relatives[key]

    def slowness(self, model: str) -> float:
        """Return the mean log of measured over profiled time per step of a model; 0 if untimed."""
        return self._slowness.get(model, 0.0)

    @cached_property
    def _arrays(self) -> dict[Mode, tuple[Floats, Floats, Bools]]:
        return {}

    @cached_property
    def _relatives(self) -> dict[tuple[Mode, Kind], Ints]:
        return {}

    @cached_property
    def _of_model(self) -> defaultdict[tuple[Mode, str], list[int]]:
        """Rows of the trajectories by mode and model, the latest first."""
        rows: defaultdict[tuple[Mode, str], list[int]] = defaultdict(list)
        for mode, trajectories in self.trajectories.items():
            for row in range(len(trajectories) - 1, -1, -1):
                rows[mode, trajectories[row].model].append(row)
        return rows

    @cached_property
    def _slowness(self) -> dict[str, float]:
        measured: defaultdict[str, list[float]] = defaultdict(list)
        for trajectories in self.trajectories.values():
            for trajectory in trajectories:
                if trajectory.slowness is not None:
                    measured[trajectory.model].append(trajectory.slowness)
        return {model: sum(logs) / len(logs) for model, logs in measured.items()}


NOTHING = History()
"""The empty history."""


def _filled(most: int, rows: list[int]) -> Ints:
    """Repeat rows cyclically up to a length; -1 without rows."""
    return np.array((rows * most)[:most] if rows else [-1] * most)
