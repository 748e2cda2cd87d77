# SPDX-License-Identifier: Apache-2.0

"""Laws of the tree that a policy asks for."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs
import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from virtco.wire import edge_policy

LINK_BPS = 100e6


def policy(classes, default_bps=2e6, egress_bps=LINK_BPS):
    return edge_policy.EdgePolicy('h1', 1, 60.0, egress_bps, egress_bps,
                                  default_bps, tuple(classes))


def coflow(minor, rate_bps, weights=(1.0,), ceil_bps=LINK_BPS, prio=0):
    total = sum(weights) or 1.0
    children = tuple(edge_policy.Destination(
        f'h{index + 2}', minor + 1 + index, weight / total,
        rate_bps * weight / total, ceil_bps)
        for index, weight in enumerate(weights))
    return edge_policy.CoflowClass(f'c{minor}', f'c{minor}', minor, rate_bps,
                                   ceil_bps, prio, children)


def unmanaged(rates_bps, others_bps=1e6):
    return edge_policy.Unmanaged(others_bps, (), tuple(
        edge_policy.DestinationLimit(f'h{slot}', slot, rate_bps,
                                     (f'fa:16:3e:00:00:{slot:02x}',))
        for slot, rate_bps in rates_bps.items()))


@st.composite
def policies(draw):
    numbers = draw(st.lists(st.integers(0, 12), max_size=6, unique=True))
    return policy([coflow(
        0x10 + 16 * number, draw(st.floats(0, 2e8)),
        draw(st.lists(st.floats(0.01, 1), max_size=4)),
        draw(st.floats(1e3, 2e8)), draw(st.integers(0, 7)))
        for number in numbers], draw(st.floats(1e3, 5e7)),
        draw(st.floats(5e7, 2e8)))


@given(policies(), st.integers(0, 40))
def test_tree_fits_the_link(wanted, n_past):
    tree = shape.build_tree(wanted, LINK_BPS, n_past=n_past)
    link_bps = min(LINK_BPS, wanted.egress_bps)
    classes = len(tree)
    # A class cannot have less than a byte per second.
    assert model.guaranteed_bps(tree) <= link_bps + 8 * classes
    for item in tree.values():
        assert 0 < item.rate_bps <= item.ceil_bps <= link_bps
        assert item.rate_bps % 8 == 0 and item.ceil_bps % 8 == 0
        assert (item.quantum_bytes >= 64 * 1024
                or minors.is_control(item.minor))
        inner = any(child.parent == item.minor for child in tree.values())
        assert (item.limit_bytes is None) == (
            inner or item.minor in {
                minors.LINK, minors.UNMANAGED, minors.CONTROL})
    assert tree[minors.HOST].rate_bps > 0


def test_a_share_of_an_expired_policy_is_no_less_than_the_floor():
    """20 and 4 kbit/s of the link, of which the latter are too little."""
    wanted = policy([coflow(0x10, 1e3, ()), *(
        coflow(minor, 0.0, ()) for minor in (0x20, 0x30, 0x40))], 800.0)
    tree = shape.build_tree(wanted, 32e3, n_past=1)
    assert tree[0x10].rate_bps / tree[0x20].rate_bps == pytest.approx(
        20 / 8, rel=1e-2)


def test_flows_of_a_coflow_get_rates_by_weight():
    tree = shape.build_tree(policy([coflow(0x10, 60e6, (5, 1))]), LINK_BPS)
    assert tree[0x11].rate_bps == pytest.approx(50e6, abs=8)
    assert tree[0x12].rate_bps == pytest.approx(10e6, abs=8)
    assert tree[0x11].quantum_bytes == 5 * tree[0x12].quantum_bytes
    assert tree[0x11].parent == tree[0x12].parent == 0x10


@given(policies(), st.floats(1e6, 1e10),
       st.lists(st.integers(1, 2 ** 31 - 1), max_size=5))
def test_what_is_no_data_has_places_of_its_own(wanted, link_bps, ports):
    tree = shape.build_tree(wanted, link_bps, ports=ports)
    default_bps = min(tree[1].rate_bps, wanted.default_rate_bps)
    # The host and unmanaged VMs share what the policy keeps for them.
    assert tree[2].rate_bps + tree[minors.UNMANAGED].rate_bps <= (
        default_bps + 16)
    assert tree[minors.CONTROL].rate_bps == pytest.approx(
        0.03 * tree[1].rate_bps, abs=8)
    children = {}
    for item in tree.values():
        children.setdefault(item.parent, []).append(item)
    assert {item.minor for item in children[minors.UNMANAGED]} == {
        minors.UNKNOWN, *minors.of_ports(ports).values()}
    for leaf in children[minors.UNMANAGED]:
        assert leaf.prio == model.LOWEST_PRIO > tree[2].prio
        assert leaf.limit_bytes == model.leaf_limit_bytes(
            default_bps, model.TreeSettings())
    assert {item.minor for item in children[minors.CONTROL]} == {
        minors.UPLINK_CONTROL, *map(
            minors.of_control, minors.of_ports(ports).values())}
    for control in children[minors.CONTROL]:
        # Bounded, first in order, and long enough for all flows at once.
        assert control.limit_bytes >= shape.CONTROL_LEAF_BYTES >= 64 * 1024
        assert control.prio == 0
        assert control.ceil_bps == tree[minors.CONTROL].ceil_bps <= (
            0.06 * tree[1].rate_bps + 8)
        assert control.quantum_bytes < 1600
    for coflow_class in wanted.classes:
        data = [item for item in children.get(coflow_class.minor, ())
                ] or [tree[coflow_class.minor]]
        assert all(item.prio < model.LOWEST_PRIO for item in data)


def test_coflows_have_turns_in_their_order():
    tree = shape.build_tree(policy([
        coflow(0x10 + 16 * rank, 1e6, prio=min(rank, 7))
        for rank in range(20)]), LINK_BPS)
    leaves = [tree[0x11 + 16 * rank] for rank in range(20)]
    assert {leaf.prio for leaf in leaves} == {0}
    quanta = [leaf.quantum_bytes for leaf in leaves]
    assert quanta == [1_250_000, 156_250] + 18 * [64 * 1024]


def test_turns_are_as_short_as_packets_where_these_are_cut():
    settings = model.TreeSettings(frame_bytes=1564, link_packet_s=0.004)
    tree = shape.build_tree(policy([
        coflow(0x10 + 16 * rank, 1e6, (3, 1), prio=min(rank, 7))
        for rank in range(20)]), 40e6, settings)
    turns = [tree[0x12 + 16 * rank].quantum_bytes for rank in range(20)]
    assert turns == [125_000, 15_625, 1953] + 17 * [1564]
    assert all(tree[0x11 + 16 * rank].quantum_bytes == 3 * turn
               for rank, turn in enumerate(turns))
    # No turn is longer than the kernel and the others can bear.
    fast = shape.build_tree(policy([coflow(0x10, 1e9)],
                                   egress_bps=400e9), 400e9)
    assert fast[0x11].quantum_bytes == settings.max_turn_bytes


def test_bytes_are_counted_as_the_wire_does():
    settings = model.TreeSettings(overhead_bytes=24, frame_min_bytes=84)
    tree = shape.build_tree(policy([coflow(0x10, 1e6)]), LINK_BPS, settings,
                            ports=[4])
    assert {(item.overhead_bytes, item.frame_min_bytes)
            for item in tree.values()} == {(24, 84)}


def test_over_committed_rates_shrink_together():
    tree = shape.build_tree(policy([coflow(0x10, 90e6), coflow(0x20, 45e6)]),
                            LINK_BPS)
    assert tree[0x10].rate_bps == pytest.approx(2 * tree[0x20].rate_bps,
                                                rel=1e-5)
    assert tree[0x10].rate_bps + tree[0x20].rate_bps == pytest.approx(
        95e6, rel=1e-5)


@pytest.mark.parametrize('n_past', [1, 7])
def test_an_old_policy_leaves_shares_and_lets_all_borrow(n_past):
    tree = shape.build_tree(policy([
        coflow(0x10, 90e6, (3, 1), 90e6), coflow(0x20, 30e6, prio=5),
        coflow(0x30, 0, prio=7)]), LINK_BPS, n_past=n_past)
    # Half by rates of 3 : 1 : 0, half equally.
    whole = sum(tree[minor].rate_bps for minor in (0x10, 0x20, 0x30))
    assert whole == pytest.approx(95e6, rel=1e-5)
    assert [tree[minor].rate_bps / whole for minor in (0x10, 0x20, 0x30)
            ] == pytest.approx([13 / 24, 7 / 24, 1 / 6], rel=1e-5)
    assert tree[0x11].rate_bps == pytest.approx(3 * tree[0x12].rate_bps,
                                                abs=32)
    assert {item.ceil_bps for minor, item in tree.items()
            if model.is_data(minor)} == {int(LINK_BPS)}
    assert {tree[minor].prio for minor in (0x11, 0x12, 0x21)} == {0}
    alone = shape.build_tree(policy([coflow(0x10, 0, prio=5)]), LINK_BPS,
                             n_past=n_past)
    assert alone[0x10].rate_bps == LINK_BPS - 5e6


@pytest.mark.parametrize('ceil_bps, limit_bytes', [
    (1e6, 128 * 1024), (40e6, 128 * 1024), (100e6, 512 * 1024),
    (1e9, 4 * 1024 ** 2), (400e9, 64 * 1024 ** 2)])
def test_leaves_are_sized_in_time(ceil_bps, limit_bytes):
    assert model.leaf_limit_bytes(
        ceil_bps, model.TreeSettings()) == limit_bytes


def test_super_packets_are_cut_where_they_take_long():
    settings = model.TreeSettings(frame_bytes=1564)
    tree = shape.build_tree(policy(
        [coflow(0x10, 5e6, (1,), ceil_bps=5e6),
         coflow(0x20, 6e6, (1,), ceil_bps=6e6),
         coflow(0x30, 1e6, (1,)), coflow(0x40, 1.1e6, (1,))]),
        LINK_BPS, settings)
    assert tree[0x11].packet_bytes == tree[0x31].packet_bytes == 1564
    assert tree[0x21].packet_bytes == model.WHOLE_BYTES
    assert tree[0x41].packet_bytes == model.WHOLE_BYTES
    assert tree[2].packet_bytes == model.WHOLE_BYTES
    assert tree[0x10].packet_bytes is None
    # Nothing is cut where nobody says how long a frame is.
    for leaf in shape.build_tree(policy([coflow(0x10, 1e4)]), 1e6).values():
        assert leaf.packet_bytes in (None, model.WHOLE_BYTES)


def test_a_leaf_on_the_edge_passes_super_packets_whole():
    settings = model.TreeSettings(frame_bytes=1564)
    ceil_bps, rate_bps = settings.whole_ceil_bps, settings.whole_rate_bps
    for rate, ceil, packet_bytes in (
            (rate_bps, ceil_bps, model.WHOLE_BYTES),
            (rate_bps - 8, ceil_bps, 1564), (rate_bps, ceil_bps - 8, 1564)):
        assert model.leaf_packet_bytes(rate, ceil, settings) == packet_bytes


def test_a_child_without_weight_has_the_least_quantum():
    tree = shape.build_tree(policy([coflow(0x10, 60e6, (0, 2, 1), prio=7)]),
                            LINK_BPS)
    least = model.TreeSettings().min_quantum_bytes
    assert [tree[minor].quantum_bytes for minor in (0x11, 0x12, 0x13)] == [
        least, 2 * least, least]
    only = shape.build_tree(policy([coflow(0x10, 60e6, (0,), prio=7)]),
                            LINK_BPS)
    assert only[0x11].quantum_bytes == least


def test_priorities_are_those_of_leaves():
    """HTB has 0 to 7; the kernel changes no inner class's."""
    tree = shape.build_tree(policy([coflow(0x10, 1e6, (1,), prio=3),
                                    coflow(0x20, 1e6, (), prio=7)]),
                            LINK_BPS, ports=[5])
    assert {tree[minor].prio for minor in (0x10, minors.LINK)} == {0}
    assert (tree[0x11].prio, tree[0x20].prio,
            tree[minors.HOST].prio,
            tree[minors.FIRST_PORT + 5].prio) == (0, 0, 6, 7)


def test_classes_and_leaves_are_compared_apart():
    one = model.HtbClass(0x11, 0x10, 8000, 16000, 1, 65536, 2 ** 17, 1564)
    for change in ({'rate_bps': 8008}, {'ceil_bps': 16008}, {'prio': 2},
                   {'parent': 1}, {'quantum_bytes': 65537}):
        other = dataclasses.replace(one, **change)
        assert not one.same_parameters(other) and one.same_leaf(other)
    for change in ({'limit_bytes': 2 ** 18}, {'packet_bytes': 2 ** 20}):
        other = dataclasses.replace(one, **change)
        assert one.same_parameters(other) and not one.same_leaf(other)
    # The kernel does not tell a burst.
    assert dataclasses.replace(one, burst_bytes=1) == one


@pytest.mark.parametrize('link_bps, cuts', [(100e6, True), (140e6, False)])
def test_super_packets_are_cut_on_a_slow_link(link_bps, cuts):
    settings = model.TreeSettings(frame_bytes=1564, link_packet_s=0.004)
    wanted = policy([coflow(0x10, 9e7, ceil_bps=1e10)], egress_bps=1e10)
    tree = shape.build_tree(wanted, link_bps, settings, ports=[4])
    assert {tree[minor].packet_bytes for minor in (2, 0x11, 0x7004)} == {
        1564 if cuts else model.WHOLE_BYTES}


def test_limited_destinations_share_what_unmanaged_traffic_has():
    wanted = structs.replace(
        policy([coflow(0x10, 9e7)]), unmanaged=unmanaged({1: 3e7, 63: 1e12}))
    tree = shape.build_tree(wanted, LINK_BPS, ports=[4, 66, 5])
    bare = shape.build_tree(policy([coflow(0x10, 9e7)]), LINK_BPS,
                            ports=[4, 66, 5])
    for slot, ceil_bps in ((0, 1e6), (1, 3e7), (63, LINK_BPS)):
        inner = tree[minors.of_limit(slot)]
        leaves = [item for item in tree.values()
                  if item.parent == inner.minor]
        # A port each, and one for all ports that are not known.
        assert len(leaves) == 4 and inner.parent == minors.UNMANAGED
        assert {item.ceil_bps for item in (inner, *leaves)} == {ceil_bps}
        assert all(minors.limit_of(item.minor) == slot for item in leaves)
    assert model.guaranteed_bps(tree) == model.guaranteed_bps(bare)
    for n_past, factor in ((1, 2), (3, 8), (40, 1e9)):
        old = shape.build_tree(wanted, LINK_BPS, n_past=n_past, ports=[4])
        assert old[minors.of_limit(1)].ceil_bps == min(
            LINK_BPS, factor * tree[minors.of_limit(1)].ceil_bps)


def test_minors_of_limits_are_of_nobody_else():
    used = [minors.of_limit(slot) for slot in range(64)] + [
        minors.of_limited(slot, seat)
        for slot in range(64) for seat in (
            minors.UNKNOWN_SEAT, *minors.seats(range(253)).values())]
    assert len(set(used)) == 64 * 255 and max(used) < 0xffff
    assert not any(map(minors.is_control, used))


def test_control_packets_of_ports_have_places():
    ports = [4, 5, 4 + minors.N_PORTS, 5000]
    own = minors.of_ports(ports)
    tree = shape.build_tree(policy([coflow(0x10, 50e6, (1, 1))]), LINK_BPS,
                            ports=ports)
    places = [minors.of_control(own[port]) for port in ports]
    assert len(set(places)) == 4
    its = tree[minors.UPLINK_CONTROL]
    for place in places:
        assert tree[place] == dataclasses.replace(its, minor=place)
        assert minors.is_control(place)
    assert {minor for minor in tree if minors.is_port(minor)} == {
        *own.values()}
    every = {minors.of_control(minor) for minor
             in minors.of_ports(range(1, 4096)).values()}
    assert len(every) == 4095 and minors.UPLINK_CONTROL not in every
    assert not minors.is_control(max(every) + 1)
    assert max(every) < minors.of_limit(0)


def parts(tree):
    return {minor: (item.parent, item.rate_bps, item.ceil_bps, item.prio)
            for minor, item in tree.items()}


def test_what_stands_without_a_policy():
    """A quarter of the default is the host's, the rest unmanaged traffic's."""
    tree = shape.base_tree(100e6, 8e6, model.TreeSettings(
        overhead_bytes=24, frame_min_bytes=84))
    assert parts(tree) == {
        minors.LINK: (minors.ROOT, 100e6, 100e6, 0),
        minors.HOST: (minors.LINK, 2e6, 100e6, 6),
        minors.UNMANAGED: (minors.LINK, 6e6, 100e6, 0),
        minors.CONTROL: (minors.LINK, 3e6, 6e6, 0)}
    assert {item.overhead_bytes for item in tree.values()} == {24}
    assert {item.frame_min_bytes for item in tree.values()} == {84}
    host = tree[minors.HOST]
    assert (host.burst_bytes, host.limit_bytes, host.quantum_bytes) == (
        65536, 131072, 65536)
    # No default is more than the rest of the link, and none is nothing.
    assert parts(shape.base_tree(1e6, 9e9, model.TreeSettings())) == parts(
        shape.base_tree(1e6, 0.97e6, model.TreeSettings()))
    least = shape.base_tree(1e6, 0.0, model.TreeSettings())
    assert {least[minor].rate_bps for minor in (
        minors.HOST, minors.UNMANAGED)} == {model.IDLE_RATE_BPS}


def test_what_stands_at_a_receiver():
    tree = shape.receiver_tree(100e6, 8e6, 0x10)
    assert parts(tree) == {
        minors.LINK: (minors.ROOT, 100e6, 100e6, 0),
        minors.HOST: (minors.LINK, 8e6, 100e6, 7),
        0x10: (minors.LINK, 92e6, 100e6, 0)}
    assert {item.overhead_bytes for item in tree.values()} == {0}
    assert tree[0x10].limit_bytes == tree[minors.HOST].limit_bytes == 524288
    assert tree[minors.HOST].quantum_bytes == 65536


def test_control_packets_have_leaves_for_many_flows():
    tree = shape.build_tree(policy([coflow(0x10, 1e6)], 8e6), LINK_BPS,
                            ports=[4])
    for minor in (minors.UPLINK_CONTROL, 0x9004):
        item = tree[minor]
        assert (item.rate_bps, item.ceil_bps, item.prio, item.quantum_bytes,
                item.packet_bytes, item.parent) == (
            8, 6e6, 0, 256, model.WHOLE_BYTES, minors.CONTROL)
        assert item.limit_bytes == 65536
    # 25 ms at their guarantee, to the next power of two.
    fast = shape.build_tree(policy([coflow(0x10, 1e9)], egress_bps=1e10),
                            1e10)
    assert fast[minors.UPLINK_CONTROL].limit_bytes == 2 ** 20
    port = tree[minors.FIRST_PORT + 4]
    assert (port.rate_bps, port.prio, port.burst_bytes, port.parent) == (
        8, 7, 0, minors.UNMANAGED)


def test_a_limited_destination_has_a_leaf_of_its_rate():
    wanted = structs.replace(policy([]), unmanaged=unmanaged(
        {1: 4e6, 2: 90e6}))
    settings = model.TreeSettings(frame_bytes=1564)
    tree = shape.build_tree(wanted, LINK_BPS, settings, ports=[4])
    default = tree[minors.HOST]
    slow, fast = (tree[minors.of_limited(slot, 4)] for slot in (1, 2))
    # At 4 Mbit/s a super-packet takes too long; no leaf exceeds the port's.
    assert (slow.packet_bytes, fast.packet_bytes) == (1564, min(
        default.packet_bytes, model.WHOLE_BYTES))
    assert slow.limit_bytes == model.leaf_limit_bytes(4e6, settings)
    assert fast.limit_bytes == default.limit_bytes
    assert slow.rate_bps == model.IDLE_RATE_BPS == tree[
        minors.of_limit(1)].rate_bps


def test_settings_in_bytes_and_times():
    settings = model.TreeSettings()
    assert (settings.leaf_s, settings.min_leaf_bytes, settings.max_leaf_bytes,
            settings.min_quantum_bytes, settings.max_quantum_bytes,
            settings.turn_s, settings.max_turn_bytes, settings.floor_bps,
            settings.super_packet_s, settings.owed_s, settings.link_packet_s,
            ) == (0.025, 131072, 67108864, 65536, 1048576, 0.1, 67108864,
                  8000, 0.1, 0.5, 0.0)
    assert (settings.overhead_bytes, settings.frame_min_bytes) == (0, 0)
    assert (settings.whole_ceil_bps, settings.whole_rate_bps) == (
        5242880, 1048576)
    assert (model.SUPER_PACKET_BYTES, model.WHOLE_BYTES) == (65536, 1048576)
    # 64 KB take 4 ms at 131,072 kbit/s.
    slow = model.TreeSettings(link_packet_s=0.004)
    assert slow.on_link(131072e3) is slow
    assert slow.on_link(131071e3).super_packet_s == 1e-9
    assert settings.on_link(1.0) is settings


@pytest.mark.parametrize(('rate_bps', 'whole'), [
    (0.0, 8), (7.9, 8), (15.9, 8), (16.0, 16), (1e9 + 7, 1e9)])
def test_whole_bytes_per_second(rate_bps, whole):
    assert model.whole_bps(rate_bps) == whole


@pytest.mark.parametrize(('ceil_bps', 'limit_bytes'), [
    (41943040, 131072), (41943041, 262144), (83886080, 262144),
    (83886090, 524288), (1e15, 67108864)])
def test_a_leaf_grows_by_powers_of_two(ceil_bps, limit_bytes):
    """131,072 bytes are 25 ms at 41.9 Mbit/s."""
    assert model.leaf_limit_bytes(ceil_bps, model.TreeSettings()
                                  ) == limit_bytes


def test_what_competes_for_the_link():
    def item(minor, parent, rate_bps):
        return model.HtbClass(minor, parent, rate_bps, 10 ** 9, 0, 1, None)

    tree = {one.minor: one for one in (
        item(minors.LINK, 0, 10 ** 9), item(minors.HOST, minors.LINK, 80),
        item(minors.UNMANAGED, minors.LINK, 160), item(0x10, minors.LINK, 800),
        item(0x11, 0x10, 400), item(0x12, 0x10, 480),
        item(0x20, minors.LINK, 1600), item(0x21, 0x20, 8))}
    assert model.children_bps(tree) == {
        0: 10 ** 9, minors.LINK: 80 + 160 + 800 + 1600, 0x10: 880, 0x20: 8}
    # Of a class and its children the larger counts.
    assert model.guaranteed_bps(tree) == 80 + 160 + 880 + 1600
    assert model.kept_bps(tree) == 240
    assert model.kept_bps({0x10: tree[0x10]}) == 0
    assert [model.is_data(minor) for minor in (
        edge_policy.FIRST_MINOR - 1, edge_policy.FIRST_MINOR,
        edge_policy.LAST_MINOR, edge_policy.LAST_MINOR + 1)] == [
            False, True, True, False]


def test_which_minor_is_of_what():
    assert minors.of_ports([4, 4095, 4096, 4097]) == {
        4: 0x7004, 4095: 0x7fff, 4096: 0x7001, 4097: 0x7002}
    assert [minors.is_port(minor) for minor in (
        0x6fff, 0x7000, 0x7fff, 0x8000)] == [False, True, True, False]
    assert minors.of_control(0x7001) == 0x9001
    assert [minors.is_control(minor) for minor in (
        0x8fff, 0x9000, 0x9fff, 0xa000)] == [False, True, True, False]
    assert (minors.ROOT, minors.LINK, minors.HOST, minors.UNMANAGED,
            minors.CONTROL, minors.UPLINK_CONTROL) == (0, 1, 2, 3, 4, 0x9000)
    assert (minors.of_limit(0), minors.of_limit(3)) == (0xc000, 0xc300)
    assert (minors.of_limited(3, 1), minors.of_limited(3, 254)) == (
        0xc301, 0xc3fe)
    assert [minors.limit_of(minor) for minor in (
        0xbfff, 0xc000, 0xc0ff, 0xc100, 0xc3fe)] == [None, 0, 0, 1, 3]
    assert [minors.seat_of(minor) for minor in (
        0x9001, 0xc000, 0xc001, 0xc100, 0xc1fe)] == [0, 0, 1, 0, 0xfe]
    assert [minors.has_turns(minor) for minor in (
        0x7001, 0xc001, 0xc000, 0x10)] == [True, True, False, False]


@given(st.sets(st.integers(1, 9999), max_size=253), st.integers(10000, 19999))
def test_ports_share_no_place_and_keep_theirs(ifindexes, later):
    """Indexes that differ by a multiple of the places share nothing."""
    for number, every in ((minors.seats, range(1, 254)),
                          (minors.of_ports, range(0x7001, 0x8000))):
        places = number(ifindexes)
        assert len(set(places.values())) == len(places) == len(ifindexes)
        assert set(places.values()) <= set(every)
        assert places.items() <= number({*ifindexes, later}).items()


def test_the_first_free_seat_after_a_ports_own_is_taken():
    assert minors.seats([4, 257, 5, 252, 505]) == {
        4: 4, 5: 5, 252: 252, 257: 6, 505: 253}
    assert minors.seats(range(1, 255))[254] == 1
    # Ports of a host that made thousands before.
    assert minors.of_ports([5, 4100, 8195, 4101]) == {
        5: 0x7005, 4100: 0x7006, 4101: 0x7007, 8195: 0x7008}


def test_early_packets_have_what_the_class_of_their_flow_lends():
    """The other coflow keeps its rate."""
    wanted = policy([coflow(0x10, 60e6, (2, 1)), coflow(0x20, 30e6)])
    usual = shape.build_tree(wanted, LINK_BPS)
    tree = shape.build_tree(wanted, LINK_BPS, early_bps={
        minors.UNMANAGED: 20e6, 0x11: -20e6})
    assert {minor: tree[minor].rate_bps - usual[minor].rate_bps
            for minor in tree if tree[minor] != usual[minor]} == {
        minors.UNMANAGED: 20e6, 0x10: -20e6, 0x11: -20e6}


@given(st.lists(st.floats(0, LINK_BPS), min_size=1, max_size=4),
       st.floats(0, 2 * LINK_BPS))
def test_guarantees_fit_beside_early_packets(rates_bps, gone_bps):
    """Also where the coflows promise more than the link, and where a class
    that lent left the policy.
    """
    lent = {0x11 + 16 * number: -rate_bps / 2
            for number, rate_bps in enumerate(rates_bps)}
    tree = shape.build_tree(policy([
        coflow(0x10 + 16 * number, rate_bps)
        for number, rate_bps in enumerate(rates_bps)]), LINK_BPS,
        model.TreeSettings(), early_bps=lent | {
            minors.UNMANAGED: gone_bps - sum(lent.values())})
    # No class has less than a byte per second.
    assert model.guaranteed_bps(tree) <= LINK_BPS + 16 * len(rates_bps)


def test_early_packets_raise_the_limit_of_their_host_alone():
    """Queues stay as long as they are, so that none is made again."""
    wanted = structs.replace(policy([]), unmanaged=unmanaged(
        {1: 4e6, 2: 9e6}))
    usual = shape.build_tree(wanted, LINK_BPS, ports=[4])
    tree = shape.build_tree(wanted, LINK_BPS, ports=[4],
                            early_bps={minors.of_limit(1): 3e6,
                                       minors.of_limit(7): 1e6})
    changed = {minors.of_limit(1), *(
        minors.of_limited(1, seat) for seat in (4, minors.UNKNOWN_SEAT))}
    assert {minor for minor in tree if tree[minor] != usual[minor]} == changed
    for minor in changed:
        assert tree[minor] == dataclasses.replace(usual[minor], ceil_bps=7e6)
    most = shape.build_tree(wanted, LINK_BPS, ports=[4],
                            early_bps={minors.of_limit(1): 2 * LINK_BPS})
    assert most[minors.of_limit(1)].ceil_bps == LINK_BPS


def test_weights_of_receivers_make_their_turns():
    settings = model.TreeSettings()
    tree = shape.build_tree(policy([coflow(0x10, 60e6, (4, 1, 3))]),
                            LINK_BPS, settings)
    # A turn of 1.25 MB in parts of an eighth.
    least = -(-1_250_000 // 8)
    assert [tree[minor].quantum_bytes for minor in (0x11, 0x12, 0x13)] == [
        4 * least, least, 3 * least]
    late = shape.build_tree(policy([coflow(0x10, 60e6, (40, 1), prio=7)]),
                            LINK_BPS, settings)
    assert [late[minor].quantum_bytes for minor in (0x11, 0x12)] == [
        settings.max_quantum_bytes, settings.min_quantum_bytes]


def test_a_policy_that_decays_has_whole_turns_for_all():
    tree = shape.build_tree(policy([coflow(0x10, 1e6, prio=3),
                                    coflow(0x20, 1e6, prio=7)]), LINK_BPS,
                            n_past=1)
    assert tree[0x11].quantum_bytes == tree[0x21].quantum_bytes == 1_250_000


def test_a_policy_holds_in_proportion_on_another_link():
    wanted = structs.replace(
        policy([coflow(0x10, 40e6, (3.0, 1.0), 80e6)]),
        unmanaged=unmanaged({1: 4e6}))
    assert shape.in_proportion(wanted, LINK_BPS) is wanted
    found = shape.in_proportion(wanted, LINK_BPS / 2)
    assert (found.egress_bps, found.default_rate_bps) == (LINK_BPS / 2, 1e6)
    one, = found.classes
    assert (one.rate_bps, one.ceil_bps) == (20e6, 40e6)
    assert [(child.rate_bps, child.ceil_bps, child.weight)
            for child in one.destinations] == [(15e6, 40e6, 0.75),
                                               (5e6, 40e6, 0.25)]
    assert found.unmanaged == structs.replace(
        unmanaged({1: 2e6}), others_bps=5e5)
    assert found.flows == wanted.flows
    assert found.ingress_bps == wanted.ingress_bps
