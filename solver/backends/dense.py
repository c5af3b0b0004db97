"""Linear algebra of small dense tables, bit-identical with any number of threads.

Above a certain size BLAS uses several threads, which changes the order of its sums. So BLAS only
gets pieces below that size, and NumPy computes the other sums.
"""

import numpy as np

from predictor.arrays import Floats

PIECE = 64
"""Largest table side for which BLAS uses one thread: OpenBLAS does so up to 64³ multiplications
(four times 65,536, by its default `GEMM_MULTITHREAD_THRESHOLD`)."""


def dot(left: Floats, right: Floats) -> float:
    """Return the sum of products."""
    return float(np.einsum("i,i->", left, right))


def multiply_over(table: Floats, over: Floats) -> Floats:
    """Return table · diag(1 / over) · tableᵀ for a table of up to 512 rows."""
    rows, columns = table.shape
    found = np.zeros((rows, rows))
    piece = max(min(PIECE, PIECE**3 // rows**2), 1)
    for first in range(0, columns, piece):
        some = table[:, first : first + piece]
        found += (some / over[first : first + piece]) @ some.T
    return found


def solve_equations(matrix: Floats, right: Floats) -> Floats:
    """Solve `matrix` (rows, rows) for `right` (rows,) by block elimination.

    Pivots are searched within a block, so no block may become singular during elimination; in a
    definite matrix none does.

    Raises:
        numpy.linalg.LinAlgError: A block is singular.
    """
    if len(matrix) <= PIECE:
        return np.linalg.solve(matrix, right).astype(float)
    first, below = matrix[:PIECE, :PIECE], matrix[PIECE:, :PIECE]
    both = np.linalg.solve(first, np.c_[matrix[:PIECE, PIECE:], right[:PIECE]])
    left = np.c_[matrix[PIECE:, PIECE:], right[PIECE:]] - np.einsum("ij,jk->ik", below, both)
    rest = solve_equations(left[:, :-1], left[:, -1])
    return np.concatenate([both[:, -1] - np.einsum("ij,j->i", both[:, :-1], rest), rest])
