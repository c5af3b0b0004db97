"""A genetic search for placements: GPUs of each job on each node.

It follows the search of Pollux's simulator (Qiao et al., OSDI '21, section 4.2): it begins with the
last populations, crosses jobs' rows, and repairs what does not fit. Populations have the shape
(placements, jobs, nodes); jobs are by descending priority.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

POPULATION, GENERATIONS = 100, 100
"""Placements of a generation, and generations, as published."""

RESET = 0.1
"""Probability with which a job's row becomes that of its lease, as published."""

CHANGES = 2.0
"""Expected changes of a kind in a mutated placement. Chosen by hand."""


@dataclass(frozen=True)
class PlacementSearch:
    """The limits of placements, and their value.

    Attributes:
        held: GPUs that each job holds on each node, shape (jobs, nodes).
        free: GPUs of each node, shape (nodes,).
        most: Maximum number of GPUs of each job, shape (jobs,).
        value: Returns the value of each placement of a population.
    """

    held: Ints
    free: Ints
    most: Ints
    value: Callable[[Ints], Floats]

    def run(self, seeds: Ints, rng: np.random.Generator) -> Ints:
        """Return the last population, distinct and best first; it holds the best ever found."""
        first = self.repair(np.concatenate([seeds, self.held[None]]))
        population, values = self._select(first, self.value(first))
        for _ in range(GENERATIONS):
            children = self.repair(self._mutate(self._cross(population, rng), rng))
            both = np.concatenate([population, children])
            population, values = self._select(both, np.append(values, self.value(children)))
        return population

    def _select(self, population: Ints, values: Floats) -> tuple[Ints, Floats]:
        """Return the best distinct placements of a population, and their values."""
        flat = population.astype(np.uint8).reshape(len(population), -1)
        _, distinct = np.unique(flat.view(f"V{flat.shape[1]}"), return_index=True)
        distinct.sort()
        best = distinct[np.argsort(-values[distinct], kind="stable")][:POPULATION]
        return np.asarray(population[best]), np.asarray(values[best])

    def _cross(self, population: Ints, rng: np.random.Generator) -> Ints:
        """Join the first rows of one parent with the last of another; each wins a tournament."""
        count, jobs, _ = population.shape
        first, second = rng.integers(count, size=(2, 2, POPULATION)).min(axis=0)
        split = rng.integers(jobs + 1, size=(POPULATION, 1))
        before = (np.arange(jobs) < split)[..., None]
        return np.asarray(np.where(before, population[first], population[second]))

    def _mutate(self, population: Ints, rng: np.random.Generator) -> Ints:
        """Reset rows to those held, take GPUs of a job on a node, and give free ones."""
        count, jobs, _ = population.shape
        reset = rng.random((count, jobs, 1)) < RESET
        population = np.where(reset, self.held, population)
        used = np.maximum(np.count_nonzero(population, axis=(1, 2)), 1)[:, None, None]
        population = np.where(rng.random(population.shape) < CHANGES / used, 0, population)
        free = np.maximum(self.free - population.sum(axis=1), 0)[:, None, :]
        grows = rng.random(population.shape) < CHANGES / jobs
        more = np.minimum((rng.random(population.shape) * (free + 1)).astype(np.int64), free)
        return np.asarray(population + np.where(grows, more, 0))

    def repair(self, population: Ints) -> Ints:
        """Take GPUs from jobs until each placement keeps the limits.

        A job has at most as many GPUs as it may, then at most one job that spans several nodes is
        on a node, then no node has more GPUs than there are. The first jobs keep theirs.
        """
        before = np.cumsum(population, axis=2) - population
        room = np.maximum(self.most[:, None] - before, 0)
        population = np.minimum(population, room)
        several = (np.count_nonzero(population, axis=2) > 1)[..., None] & (population > 0)
        population = np.where(several & (np.cumsum(several, axis=1) > 1), 0, population)
        before = np.cumsum(population, axis=1) - population
        return np.asarray(np.minimum(population, np.maximum(self.free - before, 0)))
