# SPDX-License-Identifier: Apache-2.0

"""Turns of ports that flood, or send short frames."""

from hypothesis import given
from hypothesis import strategies as st

from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from edge_module.tcplan import turns
from tests.unit.edge import test_tcplan

PORT, OTHER = minors.of_port(4), minors.of_port(5)


def _turns():
    return turns.PortTurns(24, 84)


def _sent(frame_bytes, packets, drops=0):
    return turns.Sent(frame_bytes * packets, packets, drops)


def test_who_floods_has_shorter_turns_until_it_stops():
    port = _turns()
    assert not port.update({PORT: _sent(1514, 1000, 20)}, 0)
    # Little may be lost, and a quarter is much.
    assert not port.update({PORT: _sent(1514, 2000, 350)}, 1)
    assert port.update({PORT: _sent(1514, 3000, 700)}, 2)
    assert port.turns == {PORT: turns.FLOOD_TURN}
    assert not port.update({PORT: _sent(1514, 4000, 700)}, 11)
    assert port.update({PORT: _sent(1514, 5000, 700)}, 12)
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
    assert port.turns == {PORT: 9 / 16}


def test_a_class_that_was_made_anew_begins_anew():
    port = _turns()
    port.update({PORT: _sent(1514, 9000, 9000)}, 0)
    port.update({}, 1)
    assert port.turns == {}
    port.update({PORT: _sent(1514, 9000, 10)}, 2)
    assert not port.update({PORT: _sent(1514, 300, 10)}, 20)


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 10 ** 6),
                          st.integers(0, 10 ** 6), st.floats(0, 30)),
                max_size=8))
def test_no_turn_is_nothing_or_more_than_a_whole_one(steps):
    port, total, now_s = _turns(), turns.Sent(0, 0, 0), 0.0
    for frame_bytes, packets, drops, after_s in steps:
        now_s += after_s
        total = turns.Sent(total.sent_bytes + frame_bytes * packets,
                           total.sent_packets + packets, total.drops + drops)
        port.update({PORT: total}, now_s)
        assert all(1 / 16 <= turn < 1 for turn in port.turns.values())


def test_the_tree_has_them():
    wanted = test_tcplan.policy([test_tcplan.coflow(0x10, 1e6)])
    tree = shape.build_tree(wanted, test_tcplan.LINK_BPS, ports=(4, 5),
                            turns={PORT: 0.75, minors.of_port(9): 0.5})
    assert tree[OTHER].quantum_bytes == model.TreeSettings().min_quantum_bytes
    assert tree[PORT].quantum_bytes == 0.75 * tree[OTHER].quantum_bytes
    assert minors.of_port(9) not in tree
