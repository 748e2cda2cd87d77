# SPDX-License-Identifier: Apache-2.0

"""Gates of a host, over a kernel that is a dictionary."""

import dataclasses
import threading

import pytest

from edge_module.gates import service
from edge_module.qdisc import wire
from tests.unit.edge import test_tcplan
from virtco import exception

GATE = dataclasses.replace(test_tcplan.GATE, iteration_bytes=1e6)
POLICY = test_tcplan.policy([
    test_tcplan.coflow(0x10, 1e6, (1.0, 1.0), gate=GATE),
    test_tcplan.coflow(0x20, 1e6)])


class Enforcer:
    """Also the uplink."""

    def __init__(self):
        self.policy, self.fair = POLICY, False
        self.closed = frozenset()
        self.error = None
        self.uplink = self
        self.waiting = {}
        self.looks = 0

    def class_stats(self, wanted):
        self.looks += 1
        if self.error is not None:
            raise self.error
        return {minor: wire.ClassStats(
            backlog_bytes=self.waiting.get(minor, 0))
            for minor in (0x10, 0x11, 0x12, 0x20, 0x21) if minor in wanted}

    def turn_gates(self, closed):
        self.closed = closed


@dataclasses.dataclass
class Clock:
    now_s: float = 1000.0
    ahead_s: float = 1.7e9
    error_s: float = 0.0

    def wall_s(self):
        return self.now_s + self.ahead_s


@pytest.fixture
def made():
    enforcer, clock = Enforcer(), Clock()
    gates = service.Gates(
        enforcer, threading.Event(), 0.01, lambda: clock.error_s,
        lambda now_s, ahead_s: abs(ahead_s - 1.7e9),
        clock.wall_s, lambda: clock.now_s)
    return enforcer, clock, gates


def turn_s(clock, at_s=0.0):
    """Go to so long after the gate's next turn."""
    clock.now_s += (GATE.offset_s + at_s - clock.wall_s()) % GATE.period_s


def test_only_gated_coflows_are_held_back_and_open_at_their_turn(made):
    enforcer, clock, gates = made
    turn_s(clock, 1.0)
    assert gates.look()
    assert enforcer.closed == {0x10}
    # Its leaves wait, not the class itself.
    enforcer.waiting = {0x12: 50_000}
    gates.look()
    assert enforcer.closed == {0x10}
    turn_s(clock)
    gates.look()
    assert enforcer.closed == frozenset()
    state, = gates.states()
    assert state.coflow_id == 'c16' and state.is_open and state.opened == 1
    assert state.held_s == pytest.approx(1.2, abs=0.01)
    assert not state.missed and state.period_s == GATE.period_s
    clock.now_s += 0.4
    gates.look()
    state, = gates.states()
    assert state.open_share == pytest.approx(0.25, abs=0.01)


def test_without_a_controller_all_may_send(made):
    enforcer, clock, gates = made
    assert gates.look() and enforcer.closed
    enforcer.fair = True
    assert not gates.look()
    assert not enforcer.closed and not gates.states()
    assert gates.why_open == 'no controller renews the policy'
    enforcer.fair = False
    assert gates.look() and enforcer.closed


def test_without_gates_nothing_is_read(made):
    enforcer, _, gates = made
    enforcer.policy = test_tcplan.policy([test_tcplan.coflow(0x20, 1e6)])
    assert not gates.look() and not enforcer.looks


def test_a_clock_that_nobody_keeps_opens(made):
    enforcer, clock, gates = made
    assert gates.look() and enforcer.closed
    clock.error_s, clock.now_s = float('inf'), clock.now_s + 2
    assert not gates.look() and not enforcer.closed
    assert gates.about() == {
        'gates': (), 'why_gates_open': 'no daemon keeps the clock'}
    clock.error_s, clock.now_s = 0.009, clock.now_s + 2
    assert gates.look() and enforcer.closed
    assert gates.why_open is None


@pytest.mark.parametrize('off_s', [0.05, -0.05, 1.0, -1.0])
def test_a_clock_that_differs_from_the_controllers_opens(made, off_s):
    enforcer, clock, gates = made
    assert gates.look() and enforcer.closed
    clock.ahead_s, clock.now_s = 1.7e9 + off_s, clock.now_s + 2
    assert not gates.look() and not enforcer.closed
    assert gates.why_open == ("the clock and the controller's differ by at "
                              f'least {abs(off_s):g} s')
    clock.ahead_s, clock.now_s = 1.7e9 + 0.005, clock.now_s + 2
    assert gates.look() and enforcer.closed and gates.why_open is None


def test_a_thread_that_ends_or_hangs_leaves_gates_open(made):
    enforcer, clock, gates = made
    assert gates.look() and enforcer.closed
    gates.check()
    assert enforcer.closed
    clock.now_s += service.STALE_S + 0.1
    gates.check()
    assert not enforcer.closed
    assert gates.why_open == 'nobody looks at the classes'
    gates.look()
    assert enforcer.closed and gates.why_open is None
    enforcer.error = exception.KernelRefused(what='look', count=1, why='no')
    with pytest.raises(exception.KernelRefused):
        gates.run()
    assert not enforcer.closed


def test_who_waits_goes_on_waiting_when_the_policy_is_another(made):
    enforcer, clock, gates = made
    turn_s(clock, 1.0)
    gates.look()
    enforcer.waiting = {0x12: 50_000}
    gates.look()
    # The same gate, other rates.
    enforcer.policy = dataclasses.replace(POLICY, generation=2)
    turn_s(clock)
    gates.look()
    state, = gates.states()
    assert state.opened == 1 and not enforcer.closed
    # A class that is not there yet is not held back.
    enforcer.policy = test_tcplan.policy([
        test_tcplan.coflow(0x30, 1e6, gate=GATE)])
    gates.look()
    assert not enforcer.closed and not gates.states()


def test_looks_that_cost_too_much_keep_no_turns(made):
    enforcer, _, gates = made
    stop = gates._stop
    assert gates.look() and enforcer.closed
    stop.set()  # there is no waiting
    gates._pause(service.LATE * service.MOST_COST * GATE.open_s * 0.9)
    assert enforcer.closed
    gates._pause(service.LATE * service.MOST_COST * GATE.open_s * 1.1)
    assert not enforcer.closed and not gates.states()
