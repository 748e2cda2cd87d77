# SPDX-License-Identifier: Apache-2.0

"""Turns of ports for acknowledgements of the data they receive."""

import pytest

from edge_module.tcplan import acknowledging
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import shape
from tests.unit.edge import test_tcplan

PORT, OTHER = (minors.UPLINK_CONTROL + number for number in (4, 5))
LINK_BPS = 8e6


def _received(**seen_bytes):
    return {{'port': PORT, 'other': OTHER}[name]: model.Counts(count)
            for name, count in seen_bytes.items()}


@pytest.mark.parametrize('part, turn', [
    (2.0, 128), (1.0, 128), (0.99, 64), (0.5, 64), (0.1, 8), (1 / 64, 2),
    (1 / 65, None), (0.0, None), (-1.0, None)])
def test_turns_follow_what_is_received(part, turn):
    """A set that was emptied meanwhile counts from nothing."""
    found = acknowledging.Acknowledging()
    found.update(_received(port=5e6, other=7e6), LINK_BPS, 100.0)
    assert found.turns == {}
    found.update(_received(port=5e6 + 2e6 * part), LINK_BPS, 102.0)
    assert found.turns == ({} if turn is None else {PORT: turn})
    # The other is read anew, and a port of which nothing is read has nothing.
    found.update(_received(other=9e6), LINK_BPS, 103.0)
    assert found.turns == {}


def test_turns_are_for_as_long_as_packets_wait_and_some_seconds():
    found = acknowledging.Acknowledging()
    assert not found.do_wait(4095, 100.0)
    assert found.do_wait(4096, 101.0)
    assert found.do_wait(0, 110.9)
    assert not found.do_wait(0, 111.0)


def test_a_turn_is_a_multiple_and_nothing_else_changes():
    def tree(**turns):
        return shape.build_tree(
            test_tcplan.policy([]), test_tcplan.LINK_BPS,
            model.TreeSettings(frame_bytes=1564), ports=[4, 5], **turns)

    usual, now = tree(), tree(turns={PORT: 128.0})
    assert {minor for minor in usual if usual[minor] != now[minor]} == {PORT}
    assert now[PORT].quantum_bytes == 128 * usual[PORT].quantum_bytes
    assert now[PORT].same_leaf(usual[PORT])
