# SPDX-License-Identifier: Apache-2.0

"""Policies by snapshots, which are plain values."""

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.table import objects
from virtco.decide import policy_documents as policies
from virtco.model import live
from virtco.state import schedule_input
from virtco.table import coflow_table
from virtco.table import host_policy

LINK_BPS, INGRESS_BPS = 1e9, 1.25e9
#: Bytes of the only pair wait.
SENT = np.array([np.inf])
NAMES = ('h0', 'h1', 'h2', 'h3')
HOSTS = schedule_input.Hosts(
    schedule_input.Host(name, coflow_table.Link(
        name, LINK_BPS, INGRESS_BPS, 0.02 * LINK_BPS), LINK_BPS, INGRESS_BPS)
    for name in NAMES)


def coflow(name, flows, **values):
    """:param flows: (source, destination) -> bytes left."""
    table = coflow_table.TableCoflow(name, name, [
        coflow_table.VmFlow(f'{name}-{src}', src, (f'10.0.0.{src[1:]}',),
                            dst, (f'10.0.1.{dst[1:]}',))
        for src, dst in flows], None, live.Pairs(flows))
    left = np.array([flows[pair] for pair in table.pairs], np.float64)
    return schedule_input.Coflow(live.LiveCoflow(
        name, live.Flows(table.pairs, left), n_flows=len(flows)), table,
        **values)


def at(*coflows, now_s=100.0, minors=None, **options):
    return schedule_input.Snapshot(
        now_s, schedule_input.Options(**options), HOSTS,
        np.full(len(HOSTS), 0.98 * LINK_BPS),
        np.full(len(HOSTS), 0.98 * INGRESS_BPS), coflows, minors or {})


def documents(found):
    return {host: policy.policy() for host, policy in found.of_host.items()}


def rates(found, host='h0'):
    return {c.coflow_id: c.rate_bps
            for c in documents(found)[host].classes}


PAIR = ('h0', 'h1')


def test_links_that_change_little_are_compared_once(monkeypatch):
    def drifted(part):
        return schedule_input.Hosts(dataclasses.replace(
            host, link=coflow_table.Link(host.name, *(
                part * rate_bps for rate_bps in host.link.speeds())))
            for host in HOSTS)

    found = policies.compute(seen := at())
    compared, is_close = [], host_policy.HostPolicy.is_close
    monkeypatch.setattr(host_policy.HostPolicy, 'is_close', lambda *args: (
        compared.append(args[0].link.host), is_close(*args))[1])
    seen = dataclasses.replace(seen, hosts=drifted(1.001))
    for n_compared in (4, 0, 0):
        compared.clear()
        found = policies.compute(seen, found)
        assert (found.changed, len(compared)) == ((), n_compared)
    # All that they drifted by since they were told counts.
    tolerance = seen.options.rate_tolerance_fraction
    seen = dataclasses.replace(seen, hosts=drifted(1.001 + 2 * tolerance))
    found = policies.compute(seen, found)
    assert set(found.changed) == set(NAMES)


def test_before_anything_is_known_there_is_no_host():
    found = policies.none()
    assert found.snapshot.now_s == 0 and not found.of_host
    assert not (found.snapshot.egress_bps.size
                or found.snapshot.ingress_bps.size)


def test_the_shorter_one_has_the_link():
    found = policies.compute(at(coflow('long', {PAIR: 2e9}, moved_s=100.0),
                                coflow('short', {PAIR: 1e9}, moved_s=100.0)))
    assert [c.coflow_id for c in found.schedule.coflows] == ['short', 'long']
    told = rates(found)
    assert told['short'] > 0.9 * LINK_BPS > 0.05 * LINK_BPS > told['long'] > 0
    assert documents(found).keys() == set(NAMES)
    assert found.limits() == {}


@pytest.mark.parametrize('values, makes_room', [
    ({}, False), ({'sent_bps': SENT}, True),
    ({'sent_bps': SENT, 'is_believed': False}, False)])
def test_a_receiver_keeps_room_for_what_is_sent_by_a_size_that_is_believed(
        values, makes_room):
    is_believed = values.pop('is_believed', True)
    first = coflow('first', {('h0', 'h2'): 1e7}, moved_s=100.0, **values)
    if not is_believed:
        first = dataclasses.replace(first, live=first.live._replace(
            served=first.live.flows))
    second = coflow('second', {('h1', 'h2'): 3e9}, moved_s=100.0,
                    sent_bps=SENT)
    found = policies.compute(at(first, second, work_conserving=True))
    assert [c.coflow_id for c in found.schedule.coflows] == [
        'first', 'second']
    first_bps = rates(found)['first']
    (one,) = documents(found)['h1'].classes
    assert one.ceil_bps == LINK_BPS
    assert one.destinations[0].ceil_bps == pytest.approx(
        min(LINK_BPS, max(one.rate_bps, INGRESS_BPS - first_bps * makes_room)))
    assert first_bps > 0.5 * INGRESS_BPS


@pytest.mark.parametrize(('direction', 'pairs'), [
    ('egress_bps', [('h0', 'h1'), ('h0', 'h2')]),
    ('ingress_bps', [('h1', 'h0'), ('h2', 'h0')])])
def test_what_the_network_does_not_carry_is_not_lent(direction, pairs):
    """Of the link of h0 it carries less than a third; the first coflow may
    find out that this is wrong.
    """
    coflows = [coflow(name, {pair: size_bytes}, moved_s=100.0,
                      sent_bps=SENT)
               for name, pair, size_bytes in zip(
                   ('first', 'second'), pairs, (1e8, 3e9))]
    seen = at(*coflows, work_conserving=True)

    def told(seen):
        found = documents(policies.compute(seen))
        return [one.destinations[0] for name, (src, _) in zip(
            ('first', 'second'), pairs)
            for one in found[src].classes if one.coflow_id == name]

    first, second = told(seen)
    assert first.ceil_bps == LINK_BPS and second.ceil_bps > 0.2 * LINK_BPS
    rate_bps = 0.3 * LINK_BPS
    left = getattr(seen, direction).copy()
    left[0] = 0.98 * rate_bps
    first, second = told(dataclasses.replace(
        seen, **{direction: left}, hosts=schedule_input.Hosts((
            dataclasses.replace(
                HOSTS[0], **{direction: rate_bps}), *HOSTS[1:]))))
    assert first.ceil_bps == LINK_BPS
    # The least rate of a class comes on top.
    assert first.rate_bps + second.ceil_bps <= 1.02 * rate_bps


def test_those_that_pause_get_what_the_busy_leave():
    found = policies.compute(at(
        # Its place, name and bytes are before those of the one that paused.
        coflow('asleep', {PAIR: 1.0}, moved_s=100.0, is_resting=True),
        coflow('paused', {PAIR: 1e3}, moved_s=10.0),
        coflow('queued', {PAIR: 3e9}, moved_s=10.0, is_queued=True),
        coflow('busy', {PAIR: 2e9}, moved_s=99.5)))
    assert [(c.coflow_id, c.rank) for c in found.schedule.coflows] == [
        ('busy', 0), ('queued', 1), ('paused', 2), ('asleep', 3)]


def test_under_fair_nothing_has_a_class():
    found = policies.compute(at(coflow('a', {PAIR: 1e9}), order='fair'))
    (entry,) = documents(found)['h0'].flows
    assert documents(found)['h0'].classes == ()
    assert entry.coflow_id == 'a'
    assert found.minors == {}


def test_the_next_check_is_when_somebody_has_waited_for_theta():
    waiting = coflow('a', {PAIR: 1e9}, is_queued=True)
    waiting = dataclasses.replace(waiting, live=waiting.live._replace(
        arrival_s=90.0, served_s=95.0))
    assert policies.compute(at(waiting, theta_s=20)).next_check_s == 115
    found = policies.compute(at(waiting))
    # Without theta nobody starves, and no wait is kept.
    assert found.next_check_s == np.inf and not found.waits
    idle = dataclasses.replace(waiting, is_queued=False)
    assert policies.compute(at(idle, theta_s=20)).next_check_s == np.inf


def since(one, arrival_s, sent_bytes=0.0):
    return dataclasses.replace(one, live=one.live._replace(
        arrival_s=arrival_s, served_s=one.moved_s,
        sent_bytes=sent_bytes))


def test_who_gets_a_trickle_goes_first_for_a_tenth_of_theta():
    """Short ones come all the time; the long one keeps its least rate."""
    found, first = None, []
    for now_s in map(float, range(100, 160)):
        found = policies.compute(dataclasses.replace(at(
            since(coflow('long', {PAIR: 2e12}, moved_s=now_s,
                         is_queued=True), 100.0, (now_s - 100) * 1e6),
            since(coflow(f'short{now_s}', {PAIR: 1e9}, moved_s=now_s), now_s),
            theta_s=20), now_s=now_s), found)
        if found.schedule.coflows[0].coflow_id == 'long':
            first.append(now_s)
    assert first == [120, 121, 122, 142, 143, 144]


@pytest.mark.parametrize('is_queued, first', [(True, 'long'),
                                              (False, 'short')])
def test_who_has_nothing_waiting_does_not_starve(is_queued, first):
    """Though it sent something just now, or was promised a deadline."""
    long = since(coflow('long', {PAIR: 2e12}, moved_s=99.0,
                        is_queued=is_queued), 10.0)
    found = policies.compute(at(
        dataclasses.replace(long, live=long.live._replace(
            served_s=20.0)),
        since(coflow('short', {PAIR: 1e9}, moved_s=100.0), 99.0), theta_s=30))
    assert found.schedule.coflows[0].coflow_id == first


@pytest.mark.parametrize(('order', 'protects', 'is_told'), [
    ('mrtf', True, True), ('mrtf', False, False), ('fair', True, False)])
def test_receivers_are_told_what_arrives_where_there_are_classes(
        order, protects, is_told):
    found = policies.compute(at(
        coflow('a', {PAIR: 1e9}, moved_s=100.0), order=order,
        protect_receivers=protects))
    assert {one.protects for one in found.told.layouts.of_link} == {is_told}


def test_a_class_keeps_its_minor_while_others_come_and_go():
    first = policies.compute(at(coflow('b', {PAIR: 2e9})))
    both = policies.compute(at(
        coflow('a', {PAIR: 1e9}), coflow('b', {PAIR: 2e9}),
        minors=first.minors), first)
    minor = {c.coflow_id: c.minor for c in documents(both)['h0'].classes}
    assert minor['b'] == documents(first)['h0'].classes[0].minor
    assert minor['a'] != minor['b']
    assert both.minors['h0'].taken['a'] == minor['a']


PAIRS = st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(
    lambda pair: pair[0] != pair[1])
COFLOWS = st.dictionaries(
    st.sampled_from('abcdef'),
    st.dictionaries(PAIRS, st.floats(1e3, 1e10), min_size=1, max_size=5))
OPTIONS = st.fixed_dictionaries({
    'order': st.sampled_from(['mrtf', 'fair', 'weighted-fair']),
    'work_conserving': st.booleans(), 'protect_receivers': st.booleans(),
    'rate_tolerance_fraction': st.sampled_from([0.0, 0.03, 0.3])})


@settings(deadline=None)
@given(st.lists(st.tuples(COFLOWS, OPTIONS), min_size=2, max_size=4))
def test_what_is_kept_from_before_is_as_good_as_new(steps):
    """And the same object only where it says the same."""
    before, minors = None, {}
    kept = {}
    for found, options in steps:
        coflows = []
        for name, flows in found.items():
            # What does not change is the same object in two snapshots.
            table = kept.get((name, tuple(sorted(flows))))
            made = coflow(name, flows)
            if table is not None:
                left = np.array([flows[pair] for pair in table.pairs])
                made = schedule_input.Coflow(live.LiveCoflow(
                    name, live.Flows(table.pairs, left),
                    n_flows=len(flows)), table)
            kept[name, tuple(sorted(flows))] = made.table
            coflows.append(made)
        seen = at(*coflows, minors=minors, **options)
        after = policies.compute(seen, before)
        fresh = policies.compute(dataclasses.replace(
            seen, minors=minors | after.minors))
        tolerance = options['rate_tolerance_fraction']
        assert after.of_host.keys() == fresh.of_host.keys()
        for host, policy in after.of_host.items():
            assert objects.is_close(policy.policy(), fresh.of_host[
                host].policy(), tolerance + 1e-9)
            if before is not None and tolerance == 0 and (
                    policy is before.of_host[host]):
                assert policy.policy().flows == (
                    fresh.of_host[host].policy().flows)
        # A pure function: asked again, it says the same.
        again = policies.compute(seen, before)
        assert documents(again) == documents(after)
        before, minors = after, minors | after.minors
