# SPDX-License-Identifier: Apache-2.0

"""Tickets hold for one key, one kind and one name."""

import pytest

from virtco.distribute import tickets


@pytest.mark.parametrize('other', [
    tickets.of_host('key', 'b'), tickets.of_host('other', 'a'),
    tickets.of_peer('key', 'a'), tickets.of_peer('key', 'host a'), '',
    '\xe9'])
def test_a_ticket_holds_for_one_name(other):
    ticket = tickets.of_host('key', 'a')
    assert tickets.is_same(ticket, tickets.of_host('key', 'a'))
    assert not tickets.is_same(ticket, other)


def test_a_ticket_holds_for_one_peer():
    ticket = tickets.of_peer('key', 'a')
    assert tickets.is_same(ticket, tickets.of_peer('key', 'a'))
    assert not tickets.is_same(ticket, tickets.of_peer('key', 'b'))
    assert not tickets.is_same(ticket, tickets.of_peer('other', 'a'))


def test_a_ticket_fits_a_hello():
    assert len(tickets.of_host('k' * 300, 'h' * 255)) == 64
