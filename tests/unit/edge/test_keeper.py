# SPDX-License-Identifier: Apache-2.0

"""When the kernel is made true, and what is said of it."""

import types

import pytest

from edge_module import keeper
from edge_module import kernel_events
from tests.unit.edge import test_enforcer
from virtco import exception

AUDIT_S = 60.0
ERROR = exception.KernelRefused(what='act', count=1, why='told to')


class Watch:
    """Nobody changes anything unless the test says so."""

    def __init__(self):
        self.found = kernel_events.Changes()
        self.waited, self.woken = [], 0

    def changes(self):
        found, self.found = self.found, kernel_events.Changes()
        if isinstance(found, Exception):
            raise found
        return found

    def wait(self, timeout_s):
        self.waited.append(('wait', timeout_s))

    def pause(self, timeout_s):
        self.waited.append(('pause', timeout_s))

    def wake(self):
        self.woken += 1


@pytest.fixture
def clock(monkeypatch):
    now = types.SimpleNamespace(s=1000.0)
    monkeypatch.setattr(keeper, 'time', types.SimpleNamespace(
        monotonic=lambda: now.s))
    return now


@pytest.fixture
def one(clock):
    """A keeper with a policy, whose first audit is over."""
    changed = []
    found = keeper.Keeper(test_enforcer.make(), Watch(), AUDIT_S,
                          lambda: changed.append(clock.s))
    found.changed = changed
    found.set_ports((test_enforcer.PORT,))
    found.turn()
    found.apply(test_enforcer.ONE, False)
    changed.clear()
    return found


def snapshots(one):
    return one.enforcer.uplink.asked.count('snapshot')


def test_the_first_turn_compares_everything(clock):
    found = keeper.Keeper(test_enforcer.make(), Watch(), AUDIT_S,
                          lambda: None)
    assert (found.error, found.is_failing, found.applied_generation) == (
        None, False, 0)
    found.turn()
    assert found.enforcer.uplink.tree == found.enforcer.desired_tree()
    assert found.applied_generation == 0


def test_a_policy_is_applied_at_once(one):
    woken = one._watch.woken
    one.apply(test_enforcer.ONE, True)
    assert one.enforcer.fair and one.applied_generation == 1
    assert one._watch.woken == woken + 1 and one.changed == [1000.0]
    one.set_ports((test_enforcer.PORT,))
    assert one._watch.woken == woken + 2 and len(one.changed) == 2


def test_an_audit_comes_in_its_time(one, clock):
    before = snapshots(one)
    clock.s += AUDIT_S - 0.1
    one.turn()
    assert snapshots(one) == before
    one.enforcer.uplink.tree.pop(0x21)
    clock.s += 0.1
    one.turn()
    assert snapshots(one) == before + 1
    assert 0x21 in one.enforcer.uplink.tree
    one.turn()
    assert snapshots(one) == before + 1
    assert one.enforcer.classifier.forgot == 2


def test_what_was_lost_is_made_at_once_and_then_in_turns(one, clock):
    one._watch.waited.clear()
    one.turn()
    one._watch.found = kernel_events.Changes(frozenset({7}))
    one.enforcer.uplink.tree.pop(0x21)
    one.turn()
    assert 0x21 in one.enforcer.uplink.tree
    one.turn()
    assert one._watch.waited == [
        ('wait', keeper._IDLE_S), ('pause', keeper.TICK_S),
        ('wait', keeper._IDLE_S)]
    # The next audit is counted from here.
    before = snapshots(one)
    clock.s += AUDIT_S - 1
    one.turn()
    assert snapshots(one) == before


def test_what_waits_is_looked_at_more_often(one, clock):
    one.apply(test_enforcer.TWO, False)
    one.turn()
    assert one._watch.waited[-1] == ('wait', keeper.TICK_S)
    clock.s += test_enforcer.GRACE_S + 1
    one.turn()
    assert 0x10 not in one.enforcer.uplink.tree
    assert one._watch.waited[-1] == ('wait', keeper._IDLE_S)


def test_a_refusal_is_tried_again_less_and_less_often(one, clock):
    uplink = one.enforcer.uplink
    uplink.refuses.add('snapshot')
    clock.s += AUDIT_S
    one.turn()
    assert one.is_failing and 'told to' in one.error
    assert one._watch.waited[-1] == ('wait', keeper.TICK_S)
    assert one.changed == [clock.s]
    tried_s = [clock.s]
    count = snapshots(one)
    for _ in range(200):
        clock.s += 0.1
        one.turn()
        if snapshots(one) != count:
            count = snapshots(one)
            tried_s.append(clock.s)
    between_s = [after - before
                 for before, after in zip(tried_s, tried_s[1:])]
    assert between_s == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0],
                                      abs=0.11)
    uplink.refuses.clear()
    clock.s += 5
    one.turn()
    assert not one.is_failing and one.error is None
    # The next one begins with short pauses again.
    uplink.refuses.add('snapshot')
    clock.s += AUDIT_S
    one.turn()
    count = snapshots(one)
    clock.s += 0.21
    one.turn()
    assert snapshots(one) == count + 1


def test_a_failure_elsewhere_brings_the_audit_forward(one, clock):
    count = snapshots(one)
    one.failed(ERROR)
    assert one.is_failing and one.error == str(ERROR)
    assert one.changed == [clock.s]
    one.turn()
    assert snapshots(one) == count
    clock.s += 0.2
    one.turn()
    assert snapshots(one) == count + 1 and not one.is_failing
    # It does not put off one that is due before.
    clock.s += AUDIT_S - 0.1
    one.failed(ERROR)
    clock.s += 0.1
    one.turn()
    assert snapshots(one) == count + 2


@pytest.mark.parametrize('error', [ERROR, OSError(24, 'too many files')])
def test_what_cannot_be_heard_ends_nothing(one, error):
    one._watch.found = error
    one.turn()
    assert one.is_failing
    assert one._watch.waited[-1] == ('wait', keeper.TICK_S)


def test_a_refused_document_is_told_until_the_next_is_applied(one, caplog):
    one.refuse('it is too old')
    assert caplog.text.count('the old policy stays') == 1
    one.refuse('it is too old')
    assert one.error == 'it is too old' and not one.is_failing
    assert len(one.changed) == 2
    assert caplog.text.count('the old policy stays') == 1
    one.make_true()
    assert one.error == 'it is too old'
    one.failed(ERROR)
    assert caplog.text.count('Not enforced yet') == 1
    one.failed(ERROR)
    assert one.error == str(ERROR)
    assert caplog.text.count('Not enforced yet') == 1
    one.apply(test_enforcer.ONE, False)
    assert one.error is None


def test_what_the_kernel_refuses_is_not_applied(one):
    one.enforcer.uplink.refuses.add('set_classes')
    one.apply(test_enforcer.dataclasses.replace(
        test_enforcer.TWO, generation=9), False)
    assert one.applied_generation == 1 and one.is_failing
    one.enforcer.uplink.refuses.clear()
    one.make_true()
    assert one.applied_generation == 9 and not one.is_failing
