# SPDX-License-Identifier: Apache-2.0

"""Where a coflow waits, and for whom."""

import dataclasses
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.decide import test_policy_documents as given_by
from virtco.decide import policy_documents
from virtco.decide import waiting
from virtco.model import live

NAMES = given_by.NAMES
RATE_BPS = {'egress': 0.98 * given_by.LINK_BPS,
            'ingress': 0.98 * given_by.INGRESS_BPS}


def coflow(name, flows):
    return given_by.coflow(name, flows, moved_s=100.0)


def find(*coflows, **options):
    snapshot = given_by.at(*coflows, **options)
    return waiting.find(policy_documents.compute(snapshot).schedule, snapshot)


def test_two_coflows_meet_at_one_port():
    found = find(coflow('long', {('h0', 'h1'): 2e9}),
                 coflow('short', {('h2', 'h1'): 1e9, ('h2', 'h3'): 1.0}),
                 coflow('apart', {('h3', 'h2'): 9e9}))
    assert found['long'].port == ('h1', 'ingress', '')
    assert found['long'].waits_for == ('short',)
    assert found['long'].busy_s == pytest.approx(8 * 3e9 / RATE_BPS['ingress'])
    assert (found['short'].port.host, found['short'].waits_for) == ('h2', ())
    assert found['apart'].n_before == 0


def test_a_coflow_waits_at_the_cap_of_its_vm():
    """For those before it that pass the cap, too."""
    cap = live.Cap('h0', 'egress', 'vm')
    parts = live.Capped(np.array([0]), np.ones(1), np.array([[0, -1]]),
                        {cap: 1e8})
    sent, brief, short, long = (dataclasses.replace(
        one, live=one.live._replace(capped=parts)) for one in (
            coflow('sent', {('h0', 'h1'): 0.0}),
            coflow('brief', {('h0', 'h1'): 1e6}),
            coflow('short', {('h0', 'h1'): 1e8}),
            coflow('long', {('h0', 'h1'): 1e9})))
    found = find(long, short, coflow('free', {('h0', 'h1'): 1e6}))
    assert found['long'].port == cap
    assert found['long'].waits_for == ('short',)
    assert found['long'].busy_s == pytest.approx(88)
    assert (found['free'].port.vm, found['free'].n_before) == ('', 0)
    assert find(sent) == {} and find(brief)['brief'].port.vm == 'vm'


def test_of_ports_that_are_alike_it_is_always_the_same_one():
    """Whatever the ports before them have to serve."""
    for n_bytes in (1e8 / 3, 7e9, 1e-3):
        found = find(
            coflow('first', {('h0', 'h1'): n_bytes}),
            coflow('even', {('h2', 'h3'): 1e9 / 7, ('h3', 'h2'): 1e9 / 7}))
        assert (found['even'].port.host, found['even'].port.direction) == (
            'h3', max(RATE_BPS, key=lambda way: (-RATE_BPS[way], way)))


def test_what_has_nothing_left_waits_for_nobody():
    assert find(coflow('a', {('h0', 'h1'): 0.0})) == {}
    assert find(coflow('a', {('h0', 'h1'): 1e9}), order='fair') == {}


def test_a_port_without_capacity_is_the_bottleneck():
    snapshot = given_by.at(coflow('a', {('h0', 'h1'): 1.0,
                                        ('h2', 'h3'): 9e9}))
    schedule = policy_documents.compute(snapshot).schedule
    none_bps = np.array([0.0, 1, 1, 1]) * RATE_BPS['egress']
    found = waiting.find(schedule, dataclasses.replace(
        snapshot, egress_bps=none_bps))['a']
    assert (found.port.host, found.port.direction, found.busy_s) == (
        'h0', 'egress', math.inf)
    slow = waiting.find(schedule, dataclasses.replace(
        snapshot, egress_bps=np.array([0.5, 1e9, 1e9, 1e9])))['a']
    assert (slow.port.host, slow.busy_s) == ('h2', 72.0)
    slowest = waiting.find(schedule, dataclasses.replace(
        snapshot, egress_bps=np.array([0.1, 1e9, 1e9, 1e9])))['a']
    assert (slowest.port.host, slowest.busy_s) == ('h0', 80.0)


def test_bytes_within_a_host_and_overhead():
    snapshot = dataclasses.replace(given_by.at(coflow('a', {
        ('h0', 'h1'): 1e9, ('h0', 'h0'): 9e9})), size_factor=1.25)
    (one,) = waiting.find(policy_documents.compute(snapshot).schedule,
                          snapshot).values()
    assert (one.port.host, one.port.direction, one.busy_s) == (
        'h0', 'egress', pytest.approx(1.25 * 8e9 / RATE_BPS['egress']))


FLOWS = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(
        lambda pair: pair[0] != pair[1]), st.floats(1.0, 1e10),
    min_size=1, max_size=4)


@settings(deadline=None, max_examples=50)
@given(st.lists(FLOWS, min_size=1, max_size=5))
def test_whom_it_waits_for(flows):
    """All that rank before it and have bytes at its port, and no others; and
    nothing can be served there any sooner.
    """
    coflows = {f'c{i}': some for i, some in enumerate(flows)}
    snapshot = given_by.at(*(coflow(name, some)
                             for name, some in coflows.items()))
    schedule = policy_documents.compute(snapshot).schedule
    found = waiting.find(schedule, snapshot)
    order = [c.coflow_id for c in schedule.coflows]
    for rank, name in enumerate(order):
        one = found[name]
        side = 0 if one.port.direction == 'egress' else 1
        there = {other: sum(size_bytes for pair, size_bytes
                            in coflows[other].items()
                            if pair[side] == one.port.host)
                 for other in order[:rank + 1]}
        assert one.waits_for == tuple(
            other for other in order[:rank] if there[other])
        assert there[name] > 0
        assert one.busy_s == pytest.approx(
            8 * sum(there.values()) / RATE_BPS[one.port.direction])
