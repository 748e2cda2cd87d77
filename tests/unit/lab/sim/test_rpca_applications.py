# SPDX-License-Identifier: Apache-2.0

"""The iterations that the figure of CG takes are those of CG."""

import pytest

from virtco.lab.sim.figures import rpca_applications as applications


@pytest.mark.parametrize('n', (1000, 4000, 16000))
def test_iterations_are_counted(n):
    # The sums of libraries that round in another way may end one later.
    assert applications.iterations(n) == pytest.approx(
        applications.ITERATIONS[n], abs=2)
