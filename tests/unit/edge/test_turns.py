# SPDX-License-Identifier: Apache-2.0

"""Turns of ports that flood, or send short frames."""

import dataclasses

from hypothesis import given
from hypothesis import strategies as st
import pytest

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from edge_module.tcplan import turns
from tests.unit.edge import test_tcplan

PORT, OTHER = minors.FIRST_PORT + 4, minors.FIRST_PORT + 5


def _turns():
    return turns.PortTurns(24, 84)


def _sent(frame_bytes, packets, drops=0):
    return model.Counts(frame_bytes * packets, packets, drops)


def test_who_floods_has_shorter_turns_until_it_stops():
    port = _turns()
    assert not port.update({PORT: _sent(1514, 1000, 20)}, 0)
    # Little may be lost, and a quarter is much.
    assert not port.update({PORT: _sent(1514, 2000, 350)}, 1)
    assert port.update({PORT: _sent(1514, 3000, 700)}, 2)
    assert port.turns == {PORT: turns.FLOOD_TURN}
    assert not port.update({PORT: _sent(1514, 4000, 700)}, 11)
    # Who sends nothing shows nothing.
    assert not port.update({PORT: _sent(1514, 4000, 700)}, 13)
    assert port.update({PORT: _sent(1514, 5000, 700)}, 13)
    assert port.turns == {}


def test_few_packets_are_added_up():
    port = _turns()
    for count in range(1, 11):
        port.update({PORT: _sent(1514, 15 * count, 10 * count)}, count)
        assert bool(port.turns) == (count >= 8)


def test_short_frames_have_turns_as_long_on_the_wire():
    port = _turns()
    port.update({PORT: _sent(60, 1000), OTHER: _sent(1514, 1000)}, 0)
    assert port.turns == {PORT: 11 / 16}
    port.update({PORT: _sent(60, 2000, 2000), OTHER: _sent(1514, 2000)}, 1)
    assert port.turns == {PORT: 1 / 16}


def test_frames_that_nobody_counted_are_looked_for():
    """All who send are cut, and who sends long frames is left alone."""
    port, link = _turns(), 0
    # Frames of 1,514 bytes in super-packets are no harm.
    for looks, (hidden, are_hidden) in enumerate((
            (0, False), (660, False), (1000, False), (1001, True))):
        link += hidden
        assert port.are_hidden(model.Counts(10 ** 6 * (1 + looks), 500),
                               500 + link) == are_hidden
    assert not port.are_hidden(model.Counts(10 ** 6, 400), 9000)
    idle = minors.FIRST_PORT + 6
    quiet = {idle: _sent(0, 0), OTHER: model.Counts(10 ** 6, 3),
             PORT: model.Counts(10 ** 6, 3), 0x11: model.Counts(10 ** 6)}
    assert not port.update(quiet, 0)
    assert port.update(quiet, 1, True)
    assert port.turns == dict.fromkeys((PORT, OTHER, 0x11), 15 / 16)
    assert port.update({
        minor: model.Counts(10 ** 6 + size * 1000, 1003)
        for minor, size in ((PORT, 142), (OTHER, 1514), (0x11, 142))}, 2)
    assert port.turns == {PORT: 14 / 16, 0x11: turns.FLOOD_TURN}


def test_who_fills_a_queue_and_hears_nothing_floods():
    """TCP hears at least of every second super-packet."""
    port, sent = _turns(), [0, 0]
    for now_s, (heard, is_silent) in enumerate(
            [(0, False), (40, False), (77, False), (112, True)]):
        sent[0] += 37 * 2 ** 17
        sent[1] += 1
        assert port.update({PORT: _sent(1514, 0), OTHER: model.Counts(*sent)},
                           now_s, received={OTHER: heard}) == is_silent
    assert port.turns == {OTHER: turns.FLOOD_TURN}
    # An empty queue shows nothing, and neither does what was sent before it.
    sent[0] += 2 ** 30
    port.update({OTHER: model.Counts(*sent)}, 15)
    assert port.update({OTHER: _sent(1514, 10 ** 6)}, 16,
                       received={OTHER: 112})
    assert port.turns == {}


def test_a_port_whose_counter_goes_back_is_not_silent():
    """Its device was made anew, or could not be read."""
    port = _turns()
    for now_s, heard in enumerate([10 ** 6, 0, 5]):
        port.update({OTHER: model.Counts(10 ** 9 + 1500 * now_s,
                                         10 ** 6 + now_s)},
                    now_s, received={OTHER: heard})
    assert port.turns == {}


def test_a_class_that_was_made_anew_begins_anew():
    port = _turns()
    port.update({PORT: _sent(1514, 9000, 9000)}, 0)
    port.update({}, 1)
    assert port.turns == {}
    port.update({PORT: _sent(1514, 9000, 10)}, 2)
    assert not port.update({PORT: _sent(1514, 300, 10)}, 20)
    # All that it sent counts: with a byte less the turn were 11 / 16.
    assert port.update({PORT: model.Counts(12267, 200, 0)}, 40)
    assert port.turns == {PORT: 12 / 16}


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 10 ** 6),
                          st.integers(0, 10 ** 6), st.floats(0, 30)),
                max_size=8))
def test_no_turn_is_nothing_or_more_than_a_whole_one(steps):
    port, total, now_s = _turns(), model.Counts(0, 0, 0), 0.0
    for frame_bytes, packets, drops, after_s in steps:
        now_s += after_s
        total = model.Counts(total.sent_bytes + frame_bytes * packets,
                           total.sent_packets + packets, total.drops + drops)
        port.update({PORT: total}, now_s)
        assert all(1 / 16 <= turn < 1 for turn in port.turns.values())


@pytest.mark.parametrize('turn', [turns.FLOOD_TURN, 15 / 16])
def test_who_floods_or_has_short_frames_sends_a_frame_at_a_time(turn):
    """A coflow's leaves keep their turns, and no inner class is cut."""
    wanted = test_tcplan.policy([
        test_tcplan.coflow(minor, 1e10, ceil_bps=1e11)
        for minor in (0x10, 0x20)], 1e9, 1e11)
    settings = model.TreeSettings(frame_bytes=1514)
    bare, tree = (shape.build_tree(wanted, 1e11, settings, ports=(4, 5),
                                   turns=short)
                  for short in ({}, {PORT: turn, 0x10: turn, 0x11: turn}))
    assert {minor for minor in tree if tree[minor] != bare[minor]} == {
        PORT, 0x11}
    assert bare[PORT].packet_bytes == model.WHOLE_BYTES
    assert tree[PORT].packet_bytes == 1514
    assert tree[0x11] == dataclasses.replace(bare[0x11], packet_bytes=1514)


@pytest.mark.parametrize('frame_bytes, is_short', [
    (1514, False), (750, False), (730, True), (142, True), (60, True)])
def test_short_frames_of_coflows_are_noticed(frame_bytes, is_short):
    """Whatever is lost, and at once where they become long again."""
    found = _turns()
    found.update({0x11: _sent(frame_bytes, 1000, 900)}, 0)
    assert found.turns == ({0x11: turns.FLOOD_TURN} if is_short else {})
    found.update({0x11: model.Counts(10 ** 8, 2000, 900)}, 1)
    assert found.turns == {}


def test_the_tree_has_them():
    wanted = test_tcplan.policy([test_tcplan.coflow(0x10, 1e6)])
    tree = shape.build_tree(wanted, test_tcplan.LINK_BPS, ports=(4, 5),
                            turns={PORT: 0.75, minors.FIRST_PORT + 9: 0.5})
    assert tree[OTHER].quantum_bytes == model.TreeSettings().min_quantum_bytes
    assert tree[PORT].quantum_bytes == 0.75 * tree[OTHER].quantum_bytes
    assert minors.FIRST_PORT + 9 not in tree


@pytest.mark.parametrize(('packets', 'drops', 'turn'), [
    (150, 49, None), (150, 50, None), (149, 51, 1 / 16), (300, 100, None),
    (300, 101, 1 / 16)])
def test_more_than_a_quarter_of_two_hundred_packets_is_a_flood(packets, drops,
                                                               turn):
    port = turns.PortTurns(0, 0)
    changed = port.update({PORT: _sent(1514, packets, drops)}, 0.0)
    assert changed is (turn is not None)
    assert port.turns == ({PORT: turn} if turn else {})


def test_a_flood_is_over_ten_seconds_later():
    port = turns.PortTurns(0, 0)
    port.update({PORT: _sent(1514, 200, 200)}, 5.0)
    assert port._floods_until_s == {PORT: 15.0}
    port.update({PORT: _sent(1514, 400, 200)}, 14.9)
    assert port.turns == {PORT: turns.FLOOD_TURN} == {PORT: 1 / 16}
    port.update({PORT: _sent(1514, 600, 200)}, 15.0)
    assert port.turns == {} == port._floods_until_s


@pytest.mark.parametrize(('frame_bytes', 'overhead', 'least', 'turn'), [
    (1514, 24, 84, None), (100, 24, 84, 13 / 16), (60, 24, 84, 11 / 16),
    (60, 24, 200, 5 / 16), (60, 0, 0, None), (0, 0, 0, 1 / 16),
    (2, 24, 1000, 1 / 16)])
def test_a_turn_is_that_of_the_bytes_on_the_wire(frame_bytes, overhead, least,
                                                 turn):
    port = turns.PortTurns(overhead, least)
    port.update({PORT: _sent(frame_bytes, 1000)}, 0.0)
    assert port.turns == ({PORT: turn} if turn else {})


def test_few_packets_leave_a_turn_as_it_is():
    port = _turns()
    port.update({PORT: _sent(60, 1000)}, 0.0)
    assert not port.update({PORT: _sent(60, 1199)}, 1.0)
    assert port.turns == {PORT: 11 / 16}
    # They are counted with those that follow.
    assert port._before[PORT].sent_packets == 1000
    port.update({PORT: _sent(60, 1200)}, 2.0)
    assert port._before[PORT].sent_packets == 1200
