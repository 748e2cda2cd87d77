# SPDX-License-Identifier: Apache-2.0

"""Who may send how much towards hosts where coflows arrive."""

import math

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
import pytest

from tests.unit import made
from virtco.state import unmanaged_bytes
from virtco.table import unmanaged
from virtco.wire import edge_policy

INF = math.inf


def _mac(number):
    return f'fa:16:3e:00:{number >> 8:02x}:{number & 255:02x}'


def _sender(to, sent_bps=(), slots=()):
    return unmanaged.Sender(1e9, 2e7, {
        host: frozenset({_mac(number)}) for number, host in enumerate(to)},
        dict(sent_bps), dict(slots))


@given(st.floats(1e3, 1e11), st.dictionaries(
    st.text(max_size=3), st.one_of(st.floats(0, 1e11), st.just(INF)),
    min_size=1, max_size=8))
def test_shares_are_max_min_fair(total_bps, wanted):
    given_bps = unmanaged.shares(total_bps, wanted)
    assert sum(given_bps.values()) == pytest.approx(total_bps)
    for name, rate_bps in given_bps.items():
        if rate_bps < wanted[name] * (1 - 1e-9):
            # Who gets less than it wants gets no less than anybody.
            assert all(rate_bps >= other * (1 - 1e-9) or other <= wanted[key]
                       * (1 + 1e-9) for key, other in given_bps.items())
            assert rate_bps >= total_bps / len(wanted) * (1 - 1e-9)


def test_only_destinations_of_coflows_and_of_the_sender_are_limited():
    told = unmanaged.limits({'h2': 4e8, 'h4': 1e8}, {
        'h1': _sender(['h2', 'h3']), 'h2': _sender(['h2', 'h3']),
        'h3': _sender(['h2'])})
    assert [limit.host for limit in told['h1'].limits] == ['h2']
    assert told['h1'].limits[0].rate_bps == told['h3'].limits[0].rate_bps
    assert told['h1'].limits[0].rate_bps == 2e8
    # It sends to itself, and to one where no coflow arrives.
    assert told['h2'].limits == () and told['h2'].others_bps == 2e7
    nobody = unmanaged.limits({}, {'h1': _sender(['h2'])})
    assert nobody['h1'] == edge_policy.Unmanaged(1e9)


def test_each_destination_of_a_sender_is_looked_at_once():
    """A cloud has thousands of senders, and of receivers."""
    looked_at = []

    class Macs(dict):
        def get(self, host, default=None):
            looked_at.append(host)
            return super().get(host, default)

        def items(self):
            looked_at.extend(self)
            return super().items()

    senders = {f'h{i}': unmanaged.Sender(
        1e9, 2e7, Macs({f'h{i + 1}': frozenset({_mac(i)})}), {}, {})
        for i in range(50)}
    told = unmanaged.limits({f'h{i}': 1e8 for i in range(50)}, senders)
    assert sum(len(one.limits) for one in told.values()) == 49
    assert len(looked_at) == 50


def test_one_that_wants_little_leaves_the_rest():
    told = unmanaged.limits({'h2': 1e8}, {
        'h1': _sender(['h2'], {'h2': INF}),
        'h3': _sender(['h2'], {'h2': 8e6})})
    assert told['h3'].limits[0].rate_bps == pytest.approx(1.2e7)
    assert told['h1'].limits[0].rate_bps == pytest.approx(8.8e7)
    idle = unmanaged.limits({'h2': 1e8}, {
        'h1': _sender(['h2'], {'h2': INF}),
        'h3': _sender(['h2'], {'h2': 0.0})})
    assert idle['h3'].limits[0].rate_bps == pytest.approx(1e8 / 16)


def test_slots_stay_and_the_rest_shares_one_class():
    hosts = [f'h{number:03}' for number in range(100)]
    first = unmanaged.limits(dict.fromkeys(hosts, 1e8),
                             {'s': _sender(hosts[20:80])})['s']
    slots = {limit.host: limit.slot for limit in first.limits}
    assert len(slots) == 60 and not first.others_macs
    sender = _sender(hosts, slots=slots)
    told = unmanaged.limits(dict.fromkeys(hosts, 1e8), {'s': sender})['s']
    assert slots.items() <= {limit.host: limit.slot
                             for limit in told.limits}.items()
    assert len(told.limits) == edge_policy.MAX_LIMITS
    assert len(told.others_macs) == 100 - edge_policy.MAX_LIMITS


def test_one_that_is_sent_to_has_a_slot_before_a_silent_one():
    hosts = [f'h{number:03}' for number in range(100)]
    silent = _sender(hosts, dict.fromkeys(hosts[:63], 0.0), slots={
        host: number for number, host in enumerate(hosts[:63], 1)})
    told = unmanaged.limits(dict.fromkeys(hosts, 1e8), {'s': silent})['s']
    limited = {limit.host: limit.slot for limit in told.limits}
    assert limited.keys() == {*hosts[63:], *hosts[:26]}
    # A silent one that stays has the slot that it had.
    assert [limited[host] for host in hosts[:26]] == [*range(1, 27)]


def test_an_address_at_several_hosts_shares_the_class_of_the_others():
    """A tenant may give its own VM elsewhere the address of a victim."""
    twice, once = _mac(1), _mac(2)
    sender = unmanaged.Sender(1e9, 2e7, {
        'h2': frozenset({twice, once}), 'h9': frozenset({twice})}, {}, {})
    told = unmanaged.limits({'h2': 1e8}, {'h1': sender})['h1']
    assert told.others_macs == (twice,)
    assert [(limit.host, limit.macs) for limit in told.limits] == [
        ('h2', (once,))]
    # Where no coflow arrives at any of them, it is limited no more.
    assert not unmanaged.limits({'h3': 1e8}, {'h1': sender})['h1'].others_macs


@pytest.mark.parametrize('sent_bps, n_parts', [
    # Who keeps below the limit needs no queue to take it all.
    (INF, 4), (0.99 * 2e7, 4), (0.99 * 2e7 / 4, 4), (1e3, 1)])
def test_those_that_flood_all_share_what_others_may(sent_bps, n_parts):
    flooding = [_sender([], {'': sent_bps}) for _ in range(4)]
    told = unmanaged.limits({'h2': 1e8}, dict(zip('abcd', flooding)))
    assert {some.others_bps for some in told.values()} == {2e7 / n_parts}


def test_small_changes_are_no_news():
    one = unmanaged.limits({'h2': 1e8}, {'h1': _sender(['h2'])})['h1']
    limit = one.limits[0]
    for changes, is_close in (({'rate_bps': 1.11e8}, True),
                              ({'rate_bps': 1.12e8}, False),
                              ({'rate_bps': 0.9e8}, True),
                              ({'host': 'h3'}, False),
                              ({'slot': 2}, False),
                              ({'macs': (_mac(7),)}, False)):
        other = structs.replace(
            one, limits=(structs.replace(limit, **changes),))
        assert unmanaged.is_close(one, other, 0.1) is is_close
    assert unmanaged.is_close(one, structs.replace(one), 0.0)
    for others_bps, is_close in ((2.2e7, True), (2.3e7, False)):
        assert unmanaged.is_close(one, structs.replace(
            one, others_bps=others_bps), 0.1) is is_close
    assert unmanaged.is_close(None, None, 0.1)
    assert not unmanaged.is_close(None, one, 0.1)


def _report(*macs, limited=()):
    return made.report(unmanaged={'macs': list(macs), 'limited': [
        {'host': host, 'sent_bytes': sent, 'backlog_bytes': backlog}
        for host, sent, backlog in limited]})


def test_a_limited_destination_is_known_by_its_bytes():
    told = edge_policy.Unmanaged(1e7, (), (
        edge_policy.DestinationLimit('h2', 1, 1e8, (_mac(1), _mac(2))),))
    seen = unmanaged_bytes.Towards()
    seen.update(made.report(), None, 0, 0)  # of an older module
    seen.update(_report(_mac(1)), None, 1, 1)
    assert seen.macs == {_mac(1)}
    for now_s in range(2, 20):
        seen.update(_report(limited=[('h2', 1e6 * now_s, 0)]), told, 1,
                    now_s)
    assert seen.macs == {_mac(1), _mac(2)} and seen.sent_bps == {'h2': 8e6}
    seen.update(_report(limited=[('h2', 19e6, 5), (None, 9, 0)]), told, 1, 20)
    assert seen.sent_bps == {'h2': INF, '': 0}
    for now_s in (21, 31, 32):
        seen.update(_report(limited=[('h2', 19e6, 0)]), told, 1, now_s)
    assert not seen.macs and seen.sent_bps == {'h2': 0}
