# SPDX-License-Identifier: Apache-2.0

"""Requests of an operator: which are taken, what begins, and what became."""

from hypothesis import given
from hypothesis import strategies as st
import msgspec
import pytest

from tests.unit import made
from virtco import exception
from virtco.decide import asked
from virtco.wire import probe as wire
from virtco.wire import probe_order


def request(*pairs, **values):
    return msgspec.convert({'pairs': pairs or [('a', 'b')]} | values,
                           wire.ProbeRequest)


@pytest.mark.parametrize(('field', 'low', 'high'), [
    ('bursts', 1, 1000), ('packets', 2, 5000), ('packet_bytes', 64, 8972)])
def test_whole_numbers_have_bounds(field, low, high):
    for value in (low, high):
        assert getattr(request(**{field: value}), field) == value
    for value in (low - 1, high + 1):
        with pytest.raises(msgspec.ValidationError):
            request(**{field: value})


def test_what_is_asked_for_by_default():
    one = request()
    assert (one.kind, one.bursts, one.packets, one.packet_bytes,
            one.lasts_s) == ('train', 10, 200, 1472, 3.0)
    assert request(lasts_s=10).lasts_s == 10
    for wrong in ({'lasts_s': 0}, {'lasts_s': 10.5}, {'pairs': []},
                  {'pairs': [('a', 'b')] * 1001}, {'kind': 'other'},
                  {'more': 1}):
        with pytest.raises(msgspec.ValidationError):
            request(**wrong)
    assert len(request(pairs=[('a', 'b')] * 1000).pairs) == 1000
    assert (asked.MOST, asked.PATIENCE_S) == (16, 120.0)


def test_what_the_sender_is_told():
    one = request(bursts=3, packets=50, packet_bytes=100)
    assert asked.traffic(one) == probe_order.Train(3, 50, 100)
    assert asked.traffic(request(kind='bulk', lasts_s=2)) == (
        probe_order.Bulk(2.0))


def test_a_pair_is_of_two_hosts():
    asked.check(request(('a', 'b'), ('b', 'a')))
    with pytest.raises(exception.Invalid, match='two different hosts'):
        asked.check(request(('a', 'b'), ('b', 'b')))


def test_a_pair_waits_for_both_hosts_and_not_for_ever():
    one = asked.Asked(request(('a', 'b'), ('a', 'c'), ('a', 'b')), 100.0)
    free = set('acd')
    assert list(one.begin(free, 100.0)) == [('a', 'c')] and free == {'d'}
    assert list(one.begin({'a'}, 220.0)) == []
    assert not one.is_done()
    assert list(one.begin(set('ab'), 220.0)) == [('a', 'b')]
    assert list(one.begin(set('abc'), 220.0)) == []
    one.results['a', 'c'] = None
    assert not one.is_done()
    one.results['a', 'b'] = made.measurement('a', 'b', 1e8)
    assert one.to_dict() == {'done': True, 'results': [
        {'src': 'a', 'dst': 'c'},
        {'src': 'a', 'dst': 'b', 'rate_bps': 1e8, 'lower_bound': False,
         'loss': 0.0, 'rtt_s': None, 'sent_bytes': None,
         'windows_bytes': None}]}


def test_whose_patience_ends_gets_no_result():
    one = asked.Asked(request(('a', 'b'), ('c', 'd')), 100.0)
    assert list(one.begin(set('ab'), 220.5)) == [('a', 'b')]
    assert one.results == {('c', 'd'): None}
    assert list(one.begin(set('abcd'), 221.0)) == []


HOSTS = st.sampled_from('abcdef')
PAIRS = st.lists(st.tuples(HOSTS, HOSTS).filter(lambda p: p[0] != p[1]),
                 min_size=1, max_size=6)


@given(st.lists(PAIRS, min_size=1, max_size=3), st.sets(HOSTS))
def test_no_host_is_used_twice_at_a_time(requests, free):
    left = set(free)
    begun = [pair for pairs in requests for pair in asked.Asked(
        request(*pairs), 0.0).begin(left, 1.0)]
    used = [host for pair in begun for host in pair]
    assert len(used) == len(set(used)) and set(used) <= free
    # Nothing waits that could begin.
    assert left == free - set(used)
    assert not any(set(pair) <= left for pairs in requests
                   for pair in pairs)
