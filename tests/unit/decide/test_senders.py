# SPDX-License-Identifier: Apache-2.0

"""What senders of unmanaged traffic are told, by the coflows' promises."""

import dataclasses
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.decide import test_policy_documents as given_by
from virtco.decide import policy_documents
from virtco.state import schedule_input
from virtco.table import unmanaged
from virtco.wire import edge_policy

NAMES = given_by.NAMES
SHARE = 0.02
SENT = given_by.SENT
OTHERS_BPS = 3e6


def sender(*hosts):
    """One that sends all it can, to the hosts."""
    return unmanaged.Sender(5e9, OTHERS_BPS, {
        host: frozenset({f'fa:16:3e:00:00:0{host[1:]}'}) for host in hosts},
        {}, {})


def told(*coflows, sends=None, **options):
    """:returns: of each host, its limits by destination."""
    seen = dataclasses.replace(given_by.at(
        *coflows, limit_senders=True, **options), senders=sends or {})
    found = policy_documents.compute(seen)
    return seen, found, {host: policy.unmanaged
                         for host, policy in found.of_host.items()}


def limits(some):
    return {limit.host: limit.rate_bps for limit in some.limits}


def busy(name, flows):
    return given_by.coflow(name, flows, moved_s=100.0)


def idle(name, flows):
    return given_by.coflow(name, flows, moved_s=1.0)


def arriving_bps(found, host):
    return sum(to.rate_bps for policy in found.of_host.values()
               for one in policy.policy().classes
               for to in one.destinations if to.host == host)


def test_senders_get_what_a_busy_coflow_leaves_of_its_receiver():
    # h0 sends as much as it can, less than h1 can take.
    seen, found, all_told = told(
        busy('a', {('h0', 'h1'): 1e9}), sends={'h3': sender('h1', 'h2')})
    arrives_bps = arriving_bps(found, 'h1')
    assert arrives_bps > 0.9 * given_by.LINK_BPS
    assert limits(all_told['h3']) == {'h1': pytest.approx(
        (1 - SHARE) * given_by.INGRESS_BPS - arrives_bps)}
    assert all_told['h3'].others_bps == OTHERS_BPS
    assert found.limits() == {
        host: policy.unmanaged for host, policy in found.of_host.items()}


def test_an_idle_coflow_keeps_nothing():
    _seen, found, all_told = told(
        idle('a', {('h0', 'h1'): 1e9}), sends={'h3': sender('h1')})
    assert arriving_bps(found, 'h1') > 0
    assert limits(all_told['h3']) == {'h1': pytest.approx(
        (1 - SHARE) * given_by.INGRESS_BPS)}


def test_of_a_full_link_the_least_share_is_left():
    _seen, _found, all_told = told(
        busy('a', {('h0', 'h1'): 1e9}), busy('b', {('h2', 'h1'): 1e9}),
        sends={'h3': sender('h1')})
    assert limits(all_told['h3']) == {'h1': pytest.approx(
        SHARE * given_by.INGRESS_BPS)}


def test_hosts_that_send_none_keep_to_the_rate_of_all_others():
    seen, _found, all_told = told(busy('a', {
        ('h0', 'h1'): 1e9, ('h0', 'h2'): 1e9}))
    for link in seen.hosts.links:
        assert all_told[link.host] == edge_policy.Unmanaged(
            link.default_rate_bps)
    # Where one host alone receives, it may answer at the link's speed.
    seen, _found, all_told = told(busy('a', {('h0', 'h1'): 1e9}),
                                  sends={'h3': sender('h1')})
    assert {link.host: all_told[link.host].others_bps
            for link in seen.hosts.links} == {
        'h0': seen.hosts.links[0].default_rate_bps,
        'h1': seen.hosts.links[1].egress_bps,
        'h2': seen.hosts.links[2].default_rate_bps, 'h3': OTHERS_BPS}
    _seen, _found, all_told = told(busy('a', {('h0', 'h1'): 1e9}))
    assert all_told['h1'].others_bps == seen.hosts.links[1].egress_bps


def test_what_unmanaged_traffic_has_at_a_receiver_is_not_lent():
    """Else both fill the link, and the host's own packets wait before it."""
    def ceil_bps(**more):
        _, found, _ = told(*(given_by.coflow(
            name, {(src, 'h1'): size_bytes}, moved_s=100.0, sent_bps=SENT)
            for name, src, size_bytes in (('a', 'h0', 1e9), ('b', 'h2', 9e9))),
            work_conserving=True, **more)
        one, = found.of_host['h2'].policy().classes
        return one.destinations[0].ceil_bps

    alone_bps = ceil_bps()
    assert 0.2e9 < alone_bps < 0.5e9
    assert ceil_bps(sends={'h3': sender('h2'), 'h0': sender()}) == alone_bps
    less_bps = pytest.approx(alone_bps - SHARE * given_by.INGRESS_BPS)
    assert ceil_bps(sends={'h3': sender('h1')}) == less_bps
    # Broadcasts, and packets to addresses that nobody has, come everywhere.
    for sent_bps, all_bps in ((1e3, alone_bps), (1e6, less_bps),
                              (math.inf, less_bps)):
        assert ceil_bps(sends={'h3': dataclasses.replace(
            sender(), sent_bps={'': sent_bps})}) == all_bps


def test_nor_is_it_lent_to_the_first_coflow():
    seen = given_by.at(busy('a', {('h0', 'h1'): 1e9}), work_conserving=True)
    slow = schedule_input.Hosts(dataclasses.replace(
        host, ingress_bps=5e8, link=dataclasses.replace(
            host.link, ingress_bps=5e8)) for host in seen.hosts)
    for sends, lent in (({}, 1), ({'h3': sender('h1')}, 1 - SHARE)):
        found = policy_documents.compute(dataclasses.replace(
            seen, hosts=slow, ingress_bps=np.full(4, 3e8), senders=sends))
        one, = found.of_host['h0'].policy().classes
        assert one.destinations[0].ceil_bps == pytest.approx(lent * 5e8)


def test_that_unmanaged_traffic_begins_or_ends_is_news():
    """Although a change of a ceiling that is so small is none."""
    one = given_by.coflow('a', {('h0', 'h1'): 1e9}, moved_s=100.0,
                          sent_bps=SENT)
    other = given_by.coflow('b', {('h2', 'h1'): 9e9, ('h2', 'h0'): 1e9},
                            moved_s=100.0, sent_bps=np.repeat(SENT, 2))
    seen, found, _ = told(one, other, work_conserving=True,
                          rate_tolerance_fraction=0.5)
    assert seen.options.rate_tolerance_fraction == 0.5
    for sends, changed in (({'h3': sender('h1')}, {'h0', 'h2'}), (
            {'h3': sender('h1')}, set()), ({}, {'h0', 'h2'}),
            ({'h3': sender('h3')}, set())):
        found = policy_documents.compute(
            dataclasses.replace(seen, senders=sends), found)
        # Limits are news for others.
        assert set(found.changed) & {'h0', 'h2'} == changed, sends


def test_without_coflows_nobody_is_limited():
    seen, _found, all_told = told(sends={'h3': sender('h1')})
    assert {host: some.others_bps for host, some in all_told.items()} == {
        link.host: link.egress_bps for link in seen.hosts.links} | {
        'h3': 5e9}
    seen, _found, all_told = told()
    assert {host: some.others_bps for host, some in all_told.items()} == {
        link.host: link.egress_bps for link in seen.hosts.links}


def test_limits_that_are_off_are_none():
    seen = given_by.at(busy('a', {('h0', 'h1'): 1e9}))
    assert all(policy.unmanaged is None
               for policy in policy_documents.compute(seen).of_host.values())
    assert not schedule_input.Options(limit_senders=True,
                                      order='fair').limits_senders


def test_who_sends_none_beside_senders_is_told_the_common():
    seen, found, all_told = told(
        busy('a', {('h0', 'h1'): 1e9, ('h0', 'h2'): 1e9}),
        sends={'h3': sender('h1')})
    laid = found.told.layouts
    again = policy_documents.limit_senders(
        seen, laid, found.told.numbers.child_bps)
    assert again['h0'] is laid.unlimited['h0']
    assert again['h3'] == all_told['h3']
    silent = dataclasses.replace(seen, senders={})
    assert policy_documents.limit_senders(
        silent, laid, found.told.numbers.child_bps) is laid.unlimited


FLOWS = st.dictionaries(
    st.tuples(st.sampled_from(NAMES), st.sampled_from(NAMES)).filter(
        lambda pair: pair[0] != pair[1]), st.floats(1e3, 1e10),
    min_size=1, max_size=4)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(FLOWS, st.booleans()), max_size=4),
       st.sets(st.sampled_from(NAMES)))
def test_no_receiver_is_promised_more_than_its_link(flows, sending):
    """Senders get all that busy coflows leave, and the least share at least.
    """
    seen, found, all_told = told(*(
        (busy if is_busy else idle)(f'c{i}', some)
        for i, (some, is_busy) in enumerate(flows)), sends={
            host: sender(*NAMES) for host in sending})
    promised = {f'c{i}' for i, (_some, is_busy) in enumerate(flows)
                if is_busy}
    receivers = {dst for some, _is_busy in flows for _src, dst in some}
    for host in NAMES:
        given_bps = sum(limits(some).get(host, 0.0)
                        for some in all_told.values())
        if host not in receivers or not sending - {host}:
            assert given_bps == 0
            continue
        taken_bps = sum(
            to.rate_bps for policy in found.of_host.values()
            for one in policy.policy().classes if one.coflow_id in promised
            for to in one.destinations if to.host == host)
        assert given_bps == pytest.approx(max(
            SHARE * given_by.INGRESS_BPS,
            (1 - SHARE) * given_by.INGRESS_BPS - taken_bps), rel=1e-6)
    assert not any(math.isinf(some.others_bps)
                   for some in all_told.values())
