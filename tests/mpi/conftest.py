# SPDX-License-Identifier: Apache-2.0

"""The mpi tier: real Open MPI on emulated hosts."""

import pytest

from virtco_lab.emulation import capability
from virtco_lab.emulation import mesh as meshes
from virtco_lab.emulation import mpi

N_HOSTS = 8
RATE_BPS = 20e6


@pytest.fixture(scope='session')
def mesh():
    """Hosts whose pairs all have the same rate, for all tests."""
    try:
        capability.check()
        mpi.check()
    except (capability.CannotEmulate, mpi.NoMpi) as missing:
        pytest.skip(str(missing))
    with meshes.Mesh(N_HOSTS, RATE_BPS).built() as made:
        yield made
