# SPDX-License-Identifier: Apache-2.0

"""Pairs of hosts have the rates that they are given, and trees feel them."""

import numpy as np
import pytest

from tests.netns import gear
from virtco.advise import orders
from virtco.advise import trees
from virtco_lab.emulation import mesh
from virtco_lab.emulation import namespaces

RATE_BPS = 20e6
SIZE = 250_000
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


@pytest.fixture(scope='module')
def hosts():
    with mesh.Mesh(4, RATE_BPS).built() as found:
        yield found
    assert namespaces.list_names(found.run) == []


def test_a_pair_has_its_rate(hosts):
    """At most: a machine that is busy elsewhere is slower."""
    rates_bps = np.full((4, 4), RATE_BPS)
    rates_bps[0, 1], rates_bps[2, 3] = 5e6, 10e6
    hosts.set_rates(rates_bps)
    found = hosts.measure({(0, 1): SIZE, (2, 3): SIZE})
    assert found[0, 1] < 7e6 and found[2, 3] < 14e6
    # A pair the other way round has its own.
    assert hosts.measure({(1, 0): SIZE})[1, 0] > 8e6


@gear.full(
    'netns/lab/test_mesh.py::test_a_pair_has_its_rate, '
    'netns/lab/test_mesh.py::test_segments_are_passed_on_while_others_come')
@real_time
def test_a_tree_of_fast_pairs_is_faster(hosts):
    """Only the neighbours in a line reach each other at the full rate."""
    rates_bps = np.full((4, 4), 2e6)
    for here in range(3):
        rates_bps[here, here + 1] = RATE_BPS
    hosts.set_rates(rates_bps)
    costs_s = trees.message_s(SIZE, rates_bps, np.zeros((4, 4)))
    best = orders.advise(trees.message(costs_s), 0).best
    assert best.edges == trees.chain(4, 0)
    fast_s = hosts.broadcast(best.edges, SIZE)
    slow_s = hosts.broadcast(trees.flat(4, 0), SIZE)
    assert slow_s > 3 * fast_s
    assert fast_s == pytest.approx(best.predicted_s, rel=0.5)


def test_segments_are_passed_on_while_others_come(hosts):
    hosts.set_rates(np.full((4, 4), RATE_BPS))
    chain = trees.chain(4, 0)
    # The fastest of each: a machine that is busy elsewhere is slower.
    whole_s, cut_s = (min(hosts.broadcast(chain, SIZE, n_segments)
                          for _ in range(4)) for n_segments in (1, 8))
    # 10 eighths of a message instead of three.
    assert cut_s < 0.75 * whole_s
    assert whole_s > 2 * 8 * SIZE / RATE_BPS
