# SPDX-License-Identifier: Apache-2.0

"""What of this tier the full gear runs only."""

import pytest


def full(still):
    """Mark a test that times packets for seconds.

    :param still: what of the default gear catches its faults.
    """
    return pytest.mark.full(reason='times packets for seconds', still=still)
