# SPDX-License-Identifier: Apache-2.0

"""Unmanaged traffic: who sends it where, and how much, as hosts report."""

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from tests.unit import made
from virtco.state import holders
from virtco.state import host_state
from virtco.state import host_uplinks
from virtco.state import unmanaged_bytes
from virtco.table import coflow_table
from virtco.table import unmanaged
from virtco.wire import edge_policy

A, B = '02:00:00:00:00:0a', '02:00:00:00:00:0b'
C, D = '02:00:00:00:00:0c', '02:00:00:00:00:0d'


def report(*macs, epoch='e', **limited):
    """:param limited: by host: bytes sent, or these and those that wait."""
    rows = [(None if host == 'others' else host,
             *(value if isinstance(value, tuple) else (value, 0)))
            for host, value in limited.items()]
    return made.report(epoch=epoch, unmanaged={'macs': list(macs), 'limited': [
        {'host': host, 'sent_bytes': sent, 'backlog_bytes': backlog}
        for host, sent, backlog in rows]})


TOLD = edge_policy.Unmanaged(1e6, ('m-other',), (
    edge_policy.DestinationLimit('h1', 7, 2e6, ('m-1', 'm-2')),
    edge_policy.DestinationLimit('h2', 9, 3e6, ('m-3',))))


def test_macs_are_known_for_a_while():
    found = unmanaged_bytes.Towards()
    assert not found.is_sending
    found.update(report(A, B), None, 0.0, 100.0)
    found.update(report(B), None, 1.0, 104.0)
    assert found.macs == {A, B} and found.is_sending
    found.update(report(), None, 1.0, 110.0)
    assert found.macs == {A, B}
    found.update(report(), None, 1.0, 110.1)
    assert found.macs == {B}
    found.update(report(), None, 1.0, 114.1)
    assert found.macs == set() and not found.is_sending


def flood(*macs, sent_bytes):
    """A report with so many unmanaged bytes, on a link of 8 Mbit/s."""
    return made.replaced(
        report(*macs), link={'egress_bps': 8e6, 'ingress_bps': 8e6},
        shared={'unmanaged': {'sent_bytes': sent_bytes}})


def test_macs_are_known_for_longer_where_much_was_sent():
    """Who floods for a second each 11 s would never have a limit."""
    found = unmanaged_bytes.Towards()
    found.update(flood(A, sent_bytes=9e9), None, 0.0, 100.0)
    found.update(flood(B, sent_bytes=9e9 + 124e3), None, 1.0, 101.0)
    assert found.flooded == set()
    found.update(flood(C, sent_bytes=9e9 + 250e3), None, 1.0, 102.0)
    assert found.flooded == {C}
    # Little that follows shortens nothing.
    found.update(flood(C, sent_bytes=9e9 + 250e3), None, 1.0, 103.0)
    found.update(flood(sent_bytes=9e9 + 250e3), None, 1.0, 650.0)
    assert found.macs == found.flooded == {C} and found.is_sending
    found.update(flood(sent_bytes=9e9 + 250e3), None, 1.0, 695.0)
    assert found.macs == {C} and found.flooded == set()
    found.update(flood(sent_bytes=9e9 + 250e3), None, 1.0, 702.1)
    assert not found.macs and not found.is_sending


def test_limits_follow_a_new_flood_at_once():
    found = unmanaged_bytes.Towards()
    assert not found.update(flood(A, sent_bytes=0), None, 0.0, 100.0)
    # Much to those that are known, and little to new ones.
    assert not found.update(flood(A, sent_bytes=1e6), None, 1.0, 101.0)
    assert not found.update(flood(A, B, sent_bytes=1e6), None, 1.0, 102.0)
    assert found.update(flood(A, C, sent_bytes=2e6), None, 1.0, 103.0)
    assert not found.update(flood(A, C, sent_bytes=3e6), None, 1.0, 104.0)
    assert not found.update(flood(sent_bytes=4e6), None, 1.0, 105.0)


def test_few_macs_are_known_for_longer():
    found = unmanaged_bytes.Towards()
    macs = [f'02:00:00:00:{number >> 8:02x}:{number & 255:02x}'
            for number in range(600)]
    found.update(flood(*macs[:300], sent_bytes=1e6), None, 1.0, 100.0)
    found.update(flood(*macs[300:], sent_bytes=2e6), None, 1.0, 101.0)
    assert len(found.flooded) == 512 > len(found.flooded - {*macs[300:]})
    assert found.flooded >= {*macs[300:]}
    found.update(flood(sent_bytes=2e6), None, 1.0, 112.0)
    assert found.macs == found.flooded


def test_all_of_a_host_is_limited_where_much_was_sent():
    """Its VMs would be flooded one after the other."""
    others = [f'02:00:00:00:01:{number:02x}' for number in range(200)]
    hosts = {'h0': host('h0', A), 'h1': host('h1', B, C, 'no-address'),
             'h2': host('h2', D, *others)}
    for sent_bytes, now_s in (0, 2.0), (1e6, 3.0):
        hosts['h0'].towards.update(flood(
            B, D, sent_bytes=sent_bytes), None, 1.0, now_s)
    links = [coflow_table.Link('h0', 8e6, 8e6, 3e5)]
    found = senders(hosts, {'h0'}, links)['h0'].macs
    assert found['h1'] == {B, C} and D in found['h2']
    assert len(found['h2']) in (128, 129)


def test_a_limited_destination_is_named_by_its_counter():
    found = unmanaged_bytes.Towards()
    found.update(report(h1=100, h2=500, others=50), TOLD, 0.0, 1.0)
    # What was counted before nobody knows of here.
    assert found.macs == set() and found.sent_bps == {}
    found.update(report(h1=350, h2=500, others=50), TOLD, 2.0, 3.0)
    assert found.macs == {'m-1', 'm-2'}
    assert found.sent_bps == {'h1': 1000.0, 'h2': 0.0, '': 0.0}
    assert found.is_sending
    found.update(report(h1=350, h2=500, others=51), TOLD, 4.0, 7.0)
    assert found.macs == {'m-1', 'm-2', 'm-other'}
    assert found.sent_bps == {'h1': 0.0, 'h2': 0.0, '': 2.0}


def test_where_packets_wait_the_rate_has_no_end():
    found = unmanaged_bytes.Towards()
    found.update(report(h2=(5, 1)), TOLD, 0.5, 1.0)
    assert found.sent_bps == {'h2': math.inf}
    assert found.macs == {'m-3'}
    # A report that counts nothing leaves the rates.
    found.update(report(h2=90), TOLD, 0.0, 2.0)
    assert found.sent_bps == {'h2': math.inf}
    # Counters that begin anew moved nothing that is known.
    found.update(report(h2=10), TOLD, 1.0, 3.0)
    assert found.sent_bps == {'h2': 0.0}


def test_without_limits_a_counter_names_nobody():
    found = unmanaged_bytes.Towards()
    found.update(report(h1=0, others=0), None, 1.0, 1.0)
    found.update(report(h1=7, others=3), None, 1.0, 2.0)
    assert found.macs == set()
    assert found.sent_bps == {'h1': 56.0, '': 24.0}
    assert found.is_sending  # to others
    found.update(report(h1=14, others=3), None, 1.0, 3.0)
    assert not found.is_sending


@given(st.lists(st.integers(0, 10 ** 9), min_size=2, max_size=6),
       st.floats(0.1, 60))
def test_rates_add_up_to_the_bytes(steps, elapsed_s):
    found, total, moved_bytes = unmanaged_bytes.Towards(), 0, 0.0
    found.update(report(h1=0), TOLD, elapsed_s, 0.0)
    for i, step in enumerate(steps, 1):
        total += step
        found.update(report(h1=total), TOLD, elapsed_s, i * elapsed_s)
        moved_bytes += found.sent_bps['h1'] * elapsed_s / 8
    assert moved_bytes == pytest.approx(total)


def host(name, *macs, told=None, reported=None):
    found = host_state.HostState(name, 0.0, 5.0)
    found.unmanaged = told
    ports = [{'vm': f'vm-{mac}', 'mac': mac} for mac in macs]
    found.take(made.replaced(reported or report(), ports=ports), 1.0)
    return found


def senders(hosts, names, links):
    reporters = holders.Holders()
    for name, at in hosts.items():
        reporters.update(name, (), at.macs)
    return host_uplinks.senders(hosts, names, links, reporters.of)


def test_senders_are_told_by_destination():
    hosts = {
        'h0': host('h0', A.upper(), told=TOLD,
                   reported=report(A, B, C, '02:00:00:00:00:ff')),
        'h1': host('h1', B, C, reported=report(A)),
        'h2': host('h2', D)}
    hosts['h0'].towards.sent_bps = {'h1': 5.0}
    links = [coflow_table.Link('h0', 1e9, 4e9, 3e7),
             coflow_table.Link('h1', 2e9, 5e9, 6e7),
             coflow_table.Link('h2', 8e9, 9e9, 7e7)]
    # To itself a host sends nothing that its uplink sees, and of the last
    # nobody told.
    assert senders(hosts, {'h0', 'h1'}, links) == {
        'h0': unmanaged.Sender(1e9, 3e7, {'h1': frozenset({B, C})},
                               {'h1': 5.0}, {'h1': 7, 'h2': 9}),
        'h1': unmanaged.Sender(2e9, 6e7, {'h0': frozenset({A})}, {}, {})}
    assert senders(hosts, set(), links) == {}
    # Without a link nothing can be limited.
    assert senders(
        hosts, {'h0', 'h1'}, links[1:]).keys() == {'h1'}


def test_an_address_of_two_networks_is_at_both_hosts():
    hosts = {'h0': host('h0', A, reported=report(A, B)),
             'h1': host('h1', A, B), 'h2': host('h2', B)}
    links = [coflow_table.Link('h0', 1e9, 4e9, 3e7)]
    assert senders(hosts, {'h0'}, links)['h0'].macs == {
        'h1': frozenset({A, B}), 'h2': frozenset({B})}
