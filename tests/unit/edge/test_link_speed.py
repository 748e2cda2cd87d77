# SPDX-License-Identifier: Apache-2.0

"""What a driver says of its speed."""

import pytest

from edge_module.qdisc import link_speed
from virtco import exception


@pytest.fixture
def speed(monkeypatch, tmp_path):
    """File of a device's speed in Mbit/s."""
    monkeypatch.setattr(link_speed.rdma, 'NET', tmp_path)
    (tmp_path / 'up1').mkdir()
    return tmp_path / 'up1' / 'speed'


@pytest.mark.parametrize('mbps, bps', [(1, 1e6), (2500, 2.5e9),
                                       (0xFFFE, 65_534e6)])
def test_a_speed_is_read_in_bits_per_second(speed, mbps, bps):
    speed.write_text(f'{mbps}\n')
    assert link_speed.speed_bps('up1') == bps


@pytest.mark.parametrize('answer', [
    None, '', '0', '-1', str(0xFFFF), str(0xFFFFFFFF), 'odd'])
def test_a_speed_that_nobody_knows_is_an_error(speed, answer):
    if answer is not None:
        speed.write_text(answer)
    with pytest.raises(exception.NotFound, match='up1'):
        link_speed.speed_bps('up1')
