# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""The mpi tier: real Open MPI on emulated hosts."""

import pytest

from virtco.lab.emulation import capability
from virtco.lab.emulation import mesh as meshes
from virtco.lab.emulation import mpi

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
