"""Linear algebra of small dense tables, the same to the last bit with any number of threads.

BLAS uses more threads above a certain size, and then sums in another order. So it gets pieces below
that size, and other sums are NumPy's own.
"""

import numpy as np

from predictor.arrays import Floats

PIECE = 64
"""Rows and columns of tables that BLAS multiplies, or solves equations of, by one thread: OpenBLAS
does up to 64³ multiplications (four times 65,536, by its default `GEMM_MULTITHREAD_THRESHOLD`)."""


def dot(left: Floats, right: Floats) -> float:
    """Sum of products."""
    return float(np.einsum("i,i->", left, right))


def multiply_over(table: Floats, over: Floats) -> Floats:
    """The products of rows of a table, each over a number of its column; of up to 512 rows.

    Args:
        table: Shape (rows, columns).
        over: Shape (columns,).

    Returns:
        Shape (rows, rows).
    """
    rows, columns = table.shape
    found = np.zeros((rows, rows))
    piece = max(min(PIECE, PIECE**3 // rows**2), 1)
    for first in range(0, columns, piece):
        some = table[:, first : first + piece]
        found += (some / over[first : first + piece]) @ some.T
    return found


def solve_equations(matrix: Floats, right: Floats) -> Floats:
    """Solve equations, by elimination of blocks.

    Pivots are searched within a block, so no block may be singular after the elimination of the
    blocks before it; in a definite matrix none is.

    Args:
        matrix: Shape (rows, rows).
        right: Shape (rows,).

    Returns:
        Shape (rows,).

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
