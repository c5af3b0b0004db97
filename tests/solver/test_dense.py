"""Equations and products in pieces, against NumPy at once."""

import numpy as np
import pytest

from solver.backends.dense import multiply_over, solve_equations


@pytest.mark.parametrize("rows", [1, 64, 65, 130, 200])
def test_pieces_make_the_same_as_the_whole(rows: int) -> None:
    rng = np.random.default_rng(rows)
    table, over = rng.standard_normal((rows, 300)), rng.uniform(0.5, 2.0, 300)
    matrix = multiply_over(table, over)
    np.testing.assert_allclose(matrix, (table / over) @ table.T, rtol=1e-9, atol=1e-9)
    matrix[-1, -1] = -5.0  # definite but for the last row, as those of the program over time
    right = rng.standard_normal(rows)
    np.testing.assert_allclose(matrix @ solve_equations(matrix, right), right, rtol=1e-9, atol=1e-9)
