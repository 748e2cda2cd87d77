# SPDX-License-Identifier: Apache-2.0

"""Borrowing: how far classes borrow at the ports that TCP shares."""

import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.table import ports as made_ports
from tests.unit.table import test_coflow_table as table
from tests.unit.table import test_layouts
from virtco.model import uplinks
from virtco.table import borrowing

LINKS = test_layouts.LINKS
MAYBE_SLOW = st.lists(st.one_of(st.just(math.inf), st.floats(1e5, 1e9)),
                      min_size=3, max_size=3)


def lending(laid, ranks, kept, promised=frozenset(), **ports):
    """By the coflows in the order of their ids."""
    ids = [one.coflow_id for one in laid.coflows]
    return borrowing.Lending(
        laid, made_ports.of(laid.links, table.HOSTS, **ports),
        dict(zip(ids, ranks, strict=True)),
        made_ports.sent(laid, {name for name, is_kept in zip(
            ids, kept, strict=True) if is_kept}), promised)


def a(*pairs, name='a'):
    return test_layouts.a(*pairs, name=name)


@st.composite
def _cases(draw):
    """Coflows of several senders and receivers, a rate for each of their
    pairs, ranks, and whose rates are kept.
    """
    pairs = [(src, dst) for src in table.HOSTS for dst in table.HOSTS
             if src != dst]
    cases = [a(*draw(st.lists(st.sampled_from(pairs), min_size=1, max_size=4,
                              unique=True)), name=name)
             for name in 'abcd'[:draw(st.integers(1, 4))]]
    laid = test_layouts.lay_out(*cases, links=LINKS[:draw(st.integers(2, 3))])
    ids = [one.coflow_id for one in laid.coflows]
    ranks = draw(st.permutations(range(len(ids))))
    kept = draw(st.lists(st.booleans(), min_size=len(ids),
                         max_size=len(ids)))
    child_bps = draw(st.lists(st.floats(1e5, 1.5e9), min_size=len(
        laid.class_of), max_size=len(laid.class_of)))
    return laid, np.array(child_bps), ranks, kept


def ways_of(laid, racks):
    """Return the ports of each child: egress, receiver, uplinks above.

    Each rack has an uplink up, 0 and 1, and one down, 2 and 3.
    """
    found = []
    for host, peer in zip(laid.host_of[laid.class_of].tolist(),
                          laid.peer_of.tolist()):
        hosts = [table.HOSTS.index(laid.links[host].host),
                 table.HOSTS.index(laid.peers[peer])]
        up, down = (racks[one] for one in hosts)
        above = [6 + up] * (up >= 0) + [8 + down] * (down >= 0)
        found.append([hosts[0], 3 + hosts[1], *(above if up != down else [])])
    return found


@given(_cases(), MAYBE_SLOW,
       st.lists(st.integers(-1, 1), min_size=3, max_size=3),
       st.lists(st.floats(1e5, 1e9), min_size=4, max_size=4))
def test_ceilings_are_what_kept_coflows_leave_of_each_port(
        drawn, egress_bps, racks, above_bps):
    """The first kept one fills it, the later ones what all leave."""
    laid, child_bps, ranks, kept = drawn
    left_bytes = np.where(np.arange(len(child_bps)) % 3 == 2, 0.5, 1.0)
    one = lending(laid, ranks, kept, egress_bps=egress_bps,
                  above=uplinks.Uplinks(np.array([[rack] for rack in racks]),
                                        np.array(above_bps)))
    ways, ports = ways_of(laid, racks), one.ports
    of = laid.coflow_of[laid.class_of]
    link_bps = laid.egress_bps[laid.host_of[laid.class_of]]

    def is_kept(i):
        return kept[of[i]] and left_bytes[i] == 1

    def most_bps(i, port):
        at = [j for j, way in enumerate(ways) if port in way]
        sure = [j for j in at if is_kept(j)]
        left_bps = ports.shared_bps[port] - sum(
            np.minimum(child_bps, link_bps)[sure])

        def is_after(j):
            return is_kept(j) and any(
                ranks[of[k]] < ranks[of[j]] for k in sure)

        if is_after(i):
            return child_bps[i] + max(0.0, left_bps) * link_bps[i] / sum(
                link_bps[list(filter(is_after, at))])
        if is_kept(i) or not sure:
            return max(child_bps[i], ports.first_bps[port])
        return max(child_bps[i], left_bps)

    found = one.ceil_bps(child_bps, left_bytes)
    for i, way in enumerate(ways):
        shared = [port for port in way if ports.shared_bps[port] < math.inf]
        assert found[i] == pytest.approx(min(
            [link_bps[i],
             max([borrowing.LEAST_CEIL_BPS, min(
                 [math.inf, *(most_bps(i, port) for port in shared)])])]))


@given(_cases(), MAYBE_SLOW,
       st.lists(st.integers(-1, 1), min_size=3, max_size=3))
def test_nobody_borrows_at_a_port_of_a_promised_coflow(drawn, egress_bps,
                                                       racks):
    laid, child_bps, ranks, is_promised = drawn
    promised = {one.coflow_id for one, is_one in zip(
        laid.coflows, is_promised) if is_one}
    above = uplinks.Uplinks(np.array([[rack] for rack in racks]),
                            np.full(4, 2e9))
    one = lending(laid, ranks, [False] * len(ranks), promised=promised,
                  egress_bps=egress_bps, above=above)
    ways = [{port for port in way if one.ports.shared_bps[port] < math.inf}
            for way in ways_of(laid, racks)]
    of = laid.coflow_of[laid.class_of]
    held = [any(way & other for j, other in enumerate(ways)
                if is_promised[of[j]]) for way in ways]
    assert one.is_held().tolist() == held
    link_bps = laid.egress_bps[laid.host_of[laid.class_of]]
    least_bps = np.maximum(child_bps, borrowing.LEAST_CEIL_BPS)
    assert one.ceil_bps(child_bps, child_bps)[held] == pytest.approx(
        np.minimum(least_bps, link_bps)[held])


def test_coflows_after_the_first_have_parts_of_what_is_left():
    """By the links of h1 and h2, 300 and 700 Mbit/s, since bytes wait."""
    laid = test_layouts.lay_out(
        a(('h2', 'h0')), a(('h1', 'h0'), name='b'), a(('h2', 'h0'), name='c'))
    # Children of b, of a and of c; 200 Mbit/s arrive at h0.
    assert laid.coflow_of[laid.class_of].tolist() == [1, 0, 2]
    child_bps = np.array([2e7, 1e7, 3e7])
    for kept, expected_bps in (
            ([1, 1, 1], [2e7 + 0.3 * 1.4e8, 2e8, 3e7 + 0.7 * 1.4e8]),
            ([1, 0, 1], [1.6e8, 2e8, 1.9e8]), ([0, 0, 0], [2e8] * 3)):
        assert lending(laid, range(3), kept).ceil_bps(
            child_bps, child_bps) == (
            pytest.approx(expected_bps))


def test_others_leave_room_for_four_times_what_is_sent():
    """Who trickles has nearly none, whatever it says."""
    laid = test_layouts.lay_out(a(('h2', 'h0')), a(('h1', 'h0'), name='b'))
    # Children of b and of a; 200 Mbit/s arrive at h0.
    child_bps = np.array([1e6, 1.5e8])
    for sent_bps, room_bps in ((0, 0), (1e3, 4e3), (1e7, 4e7), (5e7, 1.5e8),
                               (math.inf, 1.5e8)):
        one = borrowing.Lending(
            laid, made_ports.of(laid.links, table.HOSTS), {'a': 0, 'b': 1},
            {'a': np.array([sent_bps]), 'b': np.array([math.inf])})
        assert one.ceil_bps(child_bps, child_bps)[0] == pytest.approx(
            2e8 - room_bps)


def test_who_trickles_takes_no_part_of_what_others_borrow():
    """Neither in many classes."""
    many = [a(('h1', 'h0'), name=f'b{i}') for i in range(20)]
    laid = test_layouts.lay_out(
        a(('h2', 'h0')), *many, a(('h2', 'h0'), name='c'))
    ids = [one.coflow_id for one in laid.coflows]
    child_bps = np.full(len(ids), 1e6)
    one = borrowing.Lending(
        laid, made_ports.of(laid.links, table.HOSTS),
        {name: i for i, name in enumerate(ids)},
        {name: np.array([1e3 if name[0] == 'b' else math.inf])
         for name in ids})
    last = laid.coflow_of[laid.class_of].tolist().index(len(ids) - 1)
    assert one.ceil_bps(child_bps, child_bps)[last] > 0.98 * 2e8


def test_a_class_without_a_rate_sends_a_frame_each_tenth_of_a_second():
    """Else it would be in debt when its coflow becomes the first."""
    laid = test_layouts.lay_out(a(('h2', 'h0')), a(('h1', 'h0'), name='b'))
    found = lending(laid, range(2), [True] * 2)
    # Children of b and of a; 200 Mbit/s arrive at h0.
    frame_s = 1514 * 8 / found.ceil_bps(
        np.array([1e3, 2e8]), np.ones(2))
    assert frame_s == pytest.approx([0.1, 6e-5], rel=0.02)


def test_a_network_slower_than_the_senders_link_is_no_later_coflows():
    """The link of h2 has 700 Mbit/s, the network carries 50 of them."""
    laid = test_layouts.lay_out(a(('h2', 'h0')), a(('h2', 'h1'), name='b'),
                                a(('h2', 'h1'), name='c'))
    child_bps = np.array([4e7, 1e5, 2e5])
    for egress_bps, expected_bps in (
            ([math.inf] * 3, [2e8, 6e8, 6e8 - 1e5]),
            ([math.inf, math.inf, 5e7],
             [2e8, 1e5 + 9.7e6 / 2, 2e5 + 9.7e6 / 2])):
        found = lending(laid, range(3), [True] * 3, egress_bps=egress_bps)
        assert found.ceil_bps(child_bps, child_bps) == pytest.approx(
            expected_bps)
