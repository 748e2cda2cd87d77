# SPDX-License-Identifier: Apache-2.0

"""What a driver says of its speed."""

import sys
import types

import pytest

from edge_module.qdisc import link_speed
from virtco import exception


@pytest.fixture
def driver(monkeypatch):
    """Answers with a speed in Mbit/s, or with an error."""
    found = types.SimpleNamespace(answer=None, asked=[], n_closed=0)

    class Ethtool:
        def get_link_mode(self, dev):
            found.asked.append(dev)
            if isinstance(found.answer, Exception):
                raise found.answer
            return types.SimpleNamespace(speed=found.answer)

        def close(self):
            found.n_closed += 1

    monkeypatch.setitem(sys.modules, 'pyroute2',
                        types.SimpleNamespace(Ethtool=Ethtool))
    return found


@pytest.mark.parametrize('mbps, bps', [(1, 1e6), (2500, 2.5e9),
                                       (0xFFFE, 65_534e6)])
def test_a_speed_is_read_in_bits_per_second(driver, mbps, bps):
    driver.answer = mbps
    assert link_speed.speed_bps('up1') == bps
    assert (driver.asked, driver.n_closed) == (['up1'], 1)


@pytest.mark.parametrize('answer', [
    None, 0, -1, 0xFFFF, 0xFFFFFFFF, OSError('odd'), KeyError('mode')])
def test_a_speed_that_nobody_knows_is_an_error(driver, answer):
    driver.answer = answer
    with pytest.raises(exception.NotFound, match='up1'):
        link_speed.speed_bps('up1')
    assert driver.n_closed == 1
