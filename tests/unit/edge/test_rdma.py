# SPDX-License-Identifier: Apache-2.0

"""Counters of RDMA, as the kernel shows them below /sys/class/net."""

import pytest

from edge_module import rdma
from edge_module.probe import netdev


def test_without_rdma_there_are_no_bytes(card):
    assert rdma.read_bytes('up1', is_sent=True) == 0
    card.write('up1', 'counters/port_xmit_wait', 7)
    assert rdma.read_bytes('up1', is_sent=True) == 0


def test_words_of_four_bytes_are_counted_each_way(card):
    card.write('up1', 'counters/port_xmit_data', 5)
    card.write('up1', 'counters/port_rcv_data', 3)
    card.write('up2', 'counters/port_xmit_data', 100)
    # Other counters say the same again.
    card.write('up1', 'hw_counters/tx_bytes', 20)
    assert rdma.read_bytes('up1', is_sent=True) == 20
    assert rdma.read_bytes('up1', is_sent=False) == 12


@pytest.mark.parametrize('names, is_sent, seen_bytes', [
    ({'tx_bytes': 7, 'rx_bytes': 9}, True, 7),
    ({'tx_bytes': 7, 'rx_bytes': 9}, False, 9),
    ({'hw_tx_bytes_cnt': 7, 'hw_rx_bytes_cnt': 9}, True, 7),
    ({'hw_tx_bytes_cnt': 7, 'hw_rx_bytes_cnt': 9}, False, 9),
    ({'ip4OutOctets': 7, 'ip6OutOctets': 2, 'ip4InOctets': 1}, True, 9),
    ({'ip4InOctets': 7, 'ip6InOctets': 3, 'ip4OutOctets': 1}, False, 10)])
def test_drivers_with_counters_of_their_own(card, names, is_sent,
                                            seen_bytes):
    for name, value in names.items():
        card.write('up1', f'hw_counters/{name}', value)
    assert rdma.read_bytes('up1', is_sent) == seen_bytes


def test_each_device_has_its_port_of_a_card_with_two(card):
    for port, words in (1, 10), (2, 20):
        card.write('up1', 'counters/port_xmit_data', words, port=port)
    (card.net / 'up1' / 'dev_port').write_text('1\n')
    assert rdma.read_bytes('up1', is_sent=True) == 80


def test_a_bond_has_those_of_its_members(card):
    for dev in 'up1', 'up2':
        card.write(dev, 'counters/port_xmit_data', 10)
        card.bond('bond0', dev)
    card.write('up3', 'counters/port_xmit_data', 10)
    assert rdma.read_bytes('bond0', is_sent=True) == 80


def test_a_train_beside_rdma_does_not_have_the_link_alone(card):
    """Its share of the device's bytes would else be all of them."""
    before_bytes = netdev.read_bytes('lo', netdev.SENT)
    card.write('lo', 'counters/port_xmit_data', 10 ** 12)
    card.write('lo', 'counters/port_rcv_data', 10 ** 13)
    sent_bytes = netdev.read_bytes('lo', netdev.SENT) - before_bytes
    assert sent_bytes == pytest.approx(4e12, rel=1e-3)
    assert netdev.foreign_share(0, sent_bytes, 1000) > 0.99
    assert netdev.read_bytes('lo', netdev.RECEIVED) > 4e13
