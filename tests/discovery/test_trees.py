# SPDX-License-Identifier: Apache-2.0

"""Trees of three levels are found by real packets, with their rates."""

import pytest

from benchmarks import discovery

LINK_BPS = 20e6


@pytest.mark.real_time(reason='times the packets of TCP')
@pytest.mark.parametrize('shape, rack_over', [
    ((2, 2, 3), 3.0), ((3, 2, 2), 2.0)])
def test_three_levels_and_their_rates_are_discovered(shape, rack_over):
    truth = discovery.hidden(shape, LINK_BPS, rack_over, 2.0)
    cost, levels = discovery.run(truth, LINK_BPS)
    print(cost, levels)
    assert cost['state'] == 'done'
    assert [one.level for one in levels] == ['rack', 'pod']
    for one in levels:
        assert one.agreement >= 0.95
        assert one.n_found == one.n_switches
        assert max(one.errors) <= 0.1
