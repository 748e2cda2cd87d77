# SPDX-License-Identifier: Apache-2.0

"""Open MPI reads what virtco prints, and builds the trees that it predicts."""

import numpy as np
import pytest

from tests.mpi import conftest
from virtco import units
from virtco.advise import orders
from virtco.osc import launchers
from virtco.wire import group as wire
from virtco_lab.emulation import mpi

N = conftest.N_HOSTS
RATE_BPS = conftest.RATE_BPS
SIZE = 80_000
#: Of a pair that the tree should not use.
SLOW = 0.01
SLOW_S = units.BITS_PER_BYTE * SIZE / (SLOW * RATE_BPS)
ORDER = [3, 0, 6, 1, 7, 5, 2, 4]


def _members(mesh, display_name):
    return [wire.AdvisedMember(
        row=row, display_name=display_name(host), addresses=(address,),
        instance_uuid=f'uuid-{host}', host=None)
            for row, (host, address) in enumerate(zip(mesh.names,
                                                      mesh.addresses))]


@pytest.mark.parametrize('display_name', [str, 'a name of {}'.format],
                         ids=['by name', 'by address'])
def test_ranks_are_where_the_rankfile_says(mesh, display_name):
    called = launchers.names(_members(mesh, display_name))
    ran = mpi.run(mesh, 'broadcast', SIZE, [called[host] for host in ORDER],
                  n_runs=1)
    assert list(ran.hosts) == [mesh.names[host] for host in ORDER]


@pytest.mark.parametrize('shape', orders.Shape)
@pytest.mark.parametrize('operation', ['broadcast', 'reduce'])
@pytest.mark.parametrize('n_segments', [1, 4])
def test_messages_go_over_the_edges_of_the_tree(mesh, operation, shape,
                                                n_segments):
    """All other pairs are so slow that one message over them would tell."""
    is_reduce = operation == 'reduce'
    rates_bps = np.full((N, N), SLOW * RATE_BPS)
    for sender, receiver in orders.shaped(shape, ORDER, is_reduce):
        rates_bps[(receiver, sender) if is_reduce else
                  (sender, receiver)] = RATE_BPS
    mesh.set_rates(rates_bps)
    options = launchers.mca(operation, shape, SIZE, n_segments)
    fast, slow = (mpi.run(
        mesh, operation, SIZE, [mesh.names[host] for host in order], options,
        1)
        for order in (ORDER, [ORDER[0], *reversed(ORDER[1:])]))
    # A token bucket lets the first part of each segment through at once.
    assert fast.took_s[0] < SLOW_S / 3 < SLOW_S * 0.6 < slow.took_s[0]


def test_what_mpirun_says_is_told(mesh):
    with pytest.raises(RuntimeError, match='(?s)mpirun ended with 1.*scatter'):
        mpi.run(mesh, 'scatter', SIZE, mesh.names[:2], n_runs=1)
