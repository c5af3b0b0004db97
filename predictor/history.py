"""What finished jobs went through, for those that come after them to learn from."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from predictor.belief import Belief, changes
from predictor.job import JobSpec, Mode
from predictor.throughput import Throughput, reachable_batch_sizes

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SAME_KIND, SAME_MODEL, SAME_MODE = 8, 8, 16
"""Courses that a job learns from: the latest of its kind, else of its model, else of its mode."""

COURSES = SAME_KIND + SAME_MODEL + SAME_MODE

KEPT = 512
"""Courses of a mode that are kept, the latest; and scores of each point of progress."""

Kind = tuple[str, int, int]
"""Model, initial batch size and scale factor."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a finished job went through.

    Attributes:
        kind: Its model, initial batch size and GPUs.
        mode: How its batch size adapted.
        epochs: How many it trained.
        changes: Epochs at which its batch size changed, ascending.
        at_the_top: Whether it had no other batch size to change to at its end.
        slowness: Log of measured over profiled time per step; None where nothing was timed.
    """

    kind: Kind
    mode: Mode
    epochs: int
    changes: tuple[int, ...]
    at_the_top: bool
    slowness: float | None = None

    @property
    def model(self) -> str:
        """Its model family."""
        return self.kind[0]


def course(belief: Belief, throughput: Throughput) -> Course:
    """What is kept of a job once it has finished.

    Args:
        belief: All that was observed of it.
        throughput: How fast it was expected to train.
    """
    spec, timed = belief.spec, belief.slowness(throughput)
    changed = changes(spec, belief.observed, throughput)
    seconds = sum([seconds for _, _, seconds in timed])
    return Course(
        kind=spec.kind,
        mode=spec.mode,
        epochs=spec.epochs,
        changes=changed,
        at_the_top=spec.mode is Mode.GNS
        and len(changed) >= len(reachable_batch_sizes(throughput, spec)) - 1,
        slowness=sum([log * seconds for _, log, seconds in timed]) / seconds if timed else None,
    )


@dataclass(frozen=True)
class History:
    """Courses of finished jobs, and how well they foretold those that came after.

    Attributes:
        courses: By mode, in the order of their ends.
        foretold: By mode, how many of the jobs each way to make candidates foretold
            (`predictor.posterior`): expected counts.
        scores: By mode and point of progress, how far from the median, in probability, the
            truth of each job was that could have come otherwise.
    """

    courses: Mapping[Mode, tuple[Course, ...]] = field(default_factory=dict)
    foretold: Mapping[Mode, tuple[float, ...]] = field(default_factory=dict)
    scores: Mapping[tuple[Mode, int], tuple[float, ...]] = field(default_factory=dict)

    def size(self, mode: Mode) -> int:
        """Courses of a mode."""
        return len(self.courses.get(mode, ()))

    def of_mode(self, mode: Mode) -> tuple[Floats, Floats, NDArray[np.bool_]]:
        """Changes and epochs of a mode's courses.

        Returns:
            Epochs of the changes, shape (courses + 1, changes), infinite where there is
            none; numbers of epochs, and whether they ended at the top, shape (courses + 1,).
            The last row is no course.
        """
        if mode not in self._arrays:
            courses = self.courses.get(mode, ())
            width = max((len(course.changes) for course in courses), default=0)
            at = np.full((len(courses) + 1, width), np.inf)
            for row, course in enumerate(courses):
                at[row, : len(course.changes)] = course.changes
            epochs = np.array([*(course.epochs for course in courses), 1.0])
            at_the_top = np.array([*(course.at_the_top for course in courses), False])
            self._arrays[mode] = at, epochs, at_the_top
        return self._arrays[mode]

    def relatives(self, spec: JobSpec) -> Ints:
        """Rows of `of_mode` that a job learns from, shape (`COURSES`,).

        The first are of its kind, the next of its model, the others of its mode; again
        where there are not as many, and -1 where there is none.
        """
        key = spec.mode, spec.kind
        if key not in self._relatives:
            courses = self.courses.get(spec.mode, ())
            latest = range(len(courses) - 1, -1, -1)
            kind, model = spec.kind, spec.model
            groups = (
                (SAME_KIND, (row for row in latest if courses[row].kind == kind)),
                (
                    SAME_MODEL,
                    (r for r in latest if courses[r].model == model and courses[r].kind != kind),
                ),
                (SAME_MODE, (row for row in latest if courses[row].model != model)),
            )
            self._relatives[key] = np.concatenate(
                [_filled(most, list(islice(rows, most))) for most, rows in groups]
            )
        return self._relatives[key]

    def slowness(self, model: str) -> float:
        """Mean log of measured over profiled time per step of a model's timed courses.

        It is 0 where there are none.
        """
        return self._slowness.get(model, 0.0)

    @cached_property
    def reaches(self) -> dict[Mode, tuple[float, ...]]:
        """What follows from the scores; filled by `predictor.learning.reaches`."""
        return {}

    @cached_property
    def _arrays(self) -> dict[Mode, tuple[Floats, Floats, NDArray[np.bool_]]]:
        return {}

    @cached_property
    def _relatives(self) -> dict[tuple[Mode, Kind], Ints]:
        return {}

    @cached_property
    def _slowness(self) -> dict[str, float]:
        measured: defaultdict[str, list[float]] = defaultdict(list)
        for courses in self.courses.values():
            for course in courses:
                if course.slowness is not None:
                    measured[course.model].append(course.slowness)
        return {model: sum(logs) / len(logs) for model, logs in measured.items()}


NOTHING = History()
"""Before any job has finished."""


def _filled(most: int, rows: list[int]) -> Ints:
    """Rows over and over, up to a number; -1 if there is none."""
    return np.array((rows * most)[:most] if rows else [-1] * most)
