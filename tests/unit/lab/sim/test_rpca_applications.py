# SPDX-License-Identifier: Apache-2.0

"""The iterations that the figure of CG takes are those of CG."""

import numpy as np
import pytest
import scipy.sparse

from virtco_lab.sim.figures import rpca_applications as applications


def iterations(n: int) -> int:
    """Of conjugate gradients on a square grid of about n points.

    Until |r| <= 1e-5 |g0|, with a random right-hand side.
    """
    side = round(n ** 0.5)
    line = scipy.sparse.diags_array(
        [-1.0, 2.0, -1.0], offsets=[-1, 0, 1], shape=(side, side))
    one = scipy.sparse.eye_array(side)
    matrix = (scipy.sparse.kron(line, one)
              + scipy.sparse.kron(one, line)).tocsr()
    residual = np.random.default_rng(9).standard_normal(side * side)
    direction = residual.copy()
    square = first = float(residual @ residual)
    count = 0
    while square > 1e-10 * first:
        image = matrix @ direction
        residual -= square / float(direction @ image) * image
        before, square = square, float(residual @ residual)
        direction = residual + square / before * direction
        count += 1
    return count


@pytest.mark.parametrize('n', (1000, 4000, 16000))
def test_iterations_are_counted(n):
    # The sums of libraries that round in another way may end one later.
    assert iterations(n) == pytest.approx(
        applications.ITERATIONS[n], abs=2)
