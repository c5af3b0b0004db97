"""Buddy allocation: split and merge the free cells of a pool, and keep all promises safe."""

from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence

from predictor.errors import InputError
from solver.cells.layout import CellPool
from solver.cells.tree import Physical


def _index(cell: Physical) -> int:
    return cell.index


class FreeCells:
    """The free cells of a pool, and the number of promised cells not yet served.

    The lists contain each wholly free cell that is not part of a larger free one. They depend only
    on which cells are bound, not on the order in which they were bound.

    Attributes:
        lists: Free cells by level, in the order of the pool.
        owed: Promised cells that no physical cell serves, by level.
    """

    def __init__(self, pool: CellPool, trees: Sequence[Physical]) -> None:
        self._pool = pool
        self.lists: list[list[Physical]] = [[] for _ in pool.levels]
        self.owed = [0] * len(pool.levels)
        for tree in trees:
            self._add(tree)

    def whole(self, cell: Physical) -> Physical | None:
        """Return the listed cell that a free cell is, or is part of; None if it is not free."""
        at: Physical | None = cell
        while at is not None and not at.free:
            at = at.parent
        return at

    def count(self, level: int) -> int:
        """Count the free cells of a level, parts of larger ones included."""
        levels = self._pool.levels[level:]
        pairs = zip(self.lists[level:], levels, strict=True)
        return sum(len(cells) * size.gpus for cells, size in pairs) // levels[0].gpus

    def take(self, cell: Physical) -> None:
        """Take a free cell out, splitting the listed cell that contains it."""
        whole = self.whole(cell)
        assert whole is not None, "the cell is not free"
        self._remove(whole)
        while cell is not whole:
            assert cell.parent is not None
            for buddy in cell.parent.children:
                if buddy is not cell:
                    self._add(buddy)
            cell = cell.parent

    def give(self, cell: Physical) -> None:
        """Put a cell back, merging it with its buddies if all are free."""
        while cell.parent is not None:
            buddies = [buddy for buddy in cell.parent.children if buddy is not cell]
            if not all(buddy.free for buddy in buddies):
                break
            for buddy in buddies:
                self._remove(buddy)
            cell = cell.parent
        self._add(cell)

    def left(self) -> Iterator[tuple[int, int]]:
        """Yield, by level from the highest, the cells left after all higher promises are served.

        All promises can be kept at once if and only if none is negative (HiveD's safety condition).
        A level has its own free cells and the parts of higher free cells that are not owed.
        """
        return self._left([len(cells) for cells in self.lists], self.owed)

    def safe(self, level: int, source: int) -> bool:
        """Return whether all promises can be kept after a free cell is split to serve one.

        `level` is that of the promised cell, `source` that of the free cell.
        """
        free = [len(cells) for cells in self.lists]
        free[source] -= 1
        for below in range(level, source):
            free[below] += self._pool.levels[below + 1].parts - 1
        owed = list(self.owed)
        owed[level] -= 1
        return all(left >= 0 for _, left in self._left(free, owed))

    def check(self) -> None:
        """Check that all promises can be kept together.

        Raises:
            InputError: A level has more promised cells than cells.
        """
        for level, left in self.left():
            if left < 0:
                name, owed = self._pool.levels[level].name, self.owed[level]
                raise InputError(
                    self._pool.place,
                    f"{owed} cells {name!r} are promised and {owed + left} are there for it",
                    "promise fewer cells, or smaller ones",
                )

    def _left(self, free: Sequence[int], owed: Sequence[int]) -> Iterator[tuple[int, int]]:
        left = 0
        for level in reversed(range(len(free))):
            left = left + free[level] - owed[level]
            yield level, left
            left *= self._pool.levels[level].parts

    def _add(self, cell: Physical) -> None:
        cell.free = True
        insort(self.lists[cell.level], cell, key=_index)

    def _remove(self, cell: Physical) -> None:
        cell.free = False
        cells = self.lists[cell.level]
        del cells[bisect_left(cells, cell.index, key=_index)]
