# SPDX-License-Identifier: Apache-2.0

"""What the enforcer makes of a kernel that is a dictionary."""

import contextlib
import dataclasses
import types

from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs
import pytest

from edge_module import kernel_events
from edge_module import shaper
from edge_module import virtual_functions
from edge_module.classify import classified as classify
from edge_module.ports import kinds
from edge_module.privileged import devices
from edge_module.qdisc import wire
from edge_module.tcplan import minors
from edge_module.tcplan import model
from edge_module.tcplan import vf_rates
from tests import enforcers
from tests.unit.edge import dictionaries
from tests.unit.edge import test_card_rates
from tests.unit.edge import test_tcplan
from tests.unit.edge import test_virtual_functions
from virtco import exception
from virtco.wire import edge_policy

LINK_BPS = 100e6
GRACE_S = 5.0
FLOW = edge_policy.FlowEntry('c16', 'v1', '10.0.0.1', '10.0.0.2', 0x11)
UNMANAGED = edge_policy.Unmanaged(2e6, ('fa:16:3e:00:00:09',), (
    edge_policy.DestinationLimit('h3', 1, 4e6, ('fa:16:3e:00:00:03',)),))
ONE = structs.replace(
    test_tcplan.policy([test_tcplan.coflow(0x10, 40e6, (3.0, 1.0)),
                        test_tcplan.coflow(0x20, 8e6)]), flows=(FLOW,))
TWO = test_tcplan.policy([test_tcplan.coflow(0x20, 30e6)])
PORT = classify.VmPort('v1', 'tap1', 5, 'fa:16:3e:00:00:01', ('10.0.0.1',))
CUTTING = model.TreeSettings(link_packet_s=0.004)
AWAY = classify.VmPort('v2', 'tap2', 0, 'fa:16:3e:00:00:02', ('10.0.0.3',))


def make(**kwargs):
    steps = []
    found = enforcers.Enforcer(
        dictionaries.Uplink(), dictionaries.Classifier(), **{
            'speed_bps': lambda: LINK_BPS, 'grace_s': GRACE_S,
            'step': steps.append, **kwargs})
    found.steps = steps
    return found


def started(policy=ONE, ports=(PORT, AWAY), **kwargs):
    found = make(**kwargs)
    found.set_ports(ports, 100.0)
    found.set_policy(policy, 100.0)
    return found


def test_the_first_sync_makes_the_tree_without_any_policy():
    found = make()
    assert (found.policy, found.n_past, found.ports, found.conflict) == (
        None, 0, None, None)
    assert found.sync(None, 0, None, 100.0)
    assert found.uplink.tree == found.desired_tree()
    assert not found.sync(None, 0, None, 100.0)


def test_without_a_policy_what_stands_stays():
    found = make()
    found.set_ports((PORT,), 100.0)
    assert found.uplink.tree == found.desired_tree()
    assert set(found.uplink.tree) == {1, 2, 3, 4}
    assert found.classifier.table is None
    host = found.uplink.tree[minors.HOST]
    assert host.ceil_bps == LINK_BPS and host.rate_bps < LINK_BPS
    before = dataclasses.replace(host, rate_bps=8000)
    found.uplink.tree[minors.HOST] = before
    found.reconcile(101.0)
    assert found.uplink.tree[minors.HOST] == before
    assert not found.is_waiting


def test_a_policy_without_ports_leaves_the_classification():
    found = make()
    found.set_policy(ONE, 100.0)
    assert found.classifier.table is None
    assert {0x10, 0x11, 0x12, 0x20, 0x21} <= set(found.uplink.tree)
    found.set_ports((PORT, AWAY), 100.0)
    assert found.classifier.table == found.desired_table()
    assert found.desired_table().entries == {
        classify.Entry(5, '10.0.0.1', '10.0.0.2'): 0x11}
    assert found.desired_table().maps == {'control': {
        classify.MapKey(5): 0x9005}, 'home': {}}
    assert {0x7005, 0x9005} <= set(found.uplink.tree)
    assert minors.FIRST_PORT not in found.uplink.tree
    assert found.steps[0] == 'root' and found.steps[-1] == 'classify'


@given(st.lists(st.tuples(test_tcplan.policies(), st.integers(0, 2)),
                min_size=1, max_size=4))
@hypothesis_settings(max_examples=30, deadline=None)
def test_the_kernel_becomes_the_policy(policies):
    """Never over-committed on the way, and without a difference after."""
    found = make()
    found.set_ports((PORT,), 0.0)
    found.uplink.most_bps = 0
    now_s = 10.0
    for policy, n_past in policies:
        before_bps = model.guaranteed_bps(found.uplink.tree)
        found.set_policy(policy, now_s, n_past)
        assert found.n_past == n_past
        for _ in range(4):
            now_s += GRACE_S + 31
            found.collect(now_s)
        assert not found.is_waiting and not found.drift()
        assert found.uplink.tree == found.desired_tree()
        after_bps = model.guaranteed_bps(found.uplink.tree)
        link_bps = min(LINK_BPS, policy.egress_bps)
        assert found.uplink.most_bps <= (
            max(before_bps, after_bps, link_bps) + 8 * 200)
        found.uplink.most_bps = 0


def test_the_hosts_devices_may_be_forgotten_while_they_are_asked_for():
    known, found = devices.OfHost(frozenset({'a'}), frozenset()), make()

    class Forgotten(type(found)):
        found = [None, known]
        _host = property(lambda self: self.found.pop(),
                         lambda self, host: None)

    found.__class__ = Forgotten
    assert found.host == known


def test_classes_leave_when_their_grace_is_over():
    found = started()
    assert not found.is_waiting
    found.set_policy(TWO, 200.0)
    assert found.is_waiting
    # The grace begins when nothing waits in them.
    found.collect(200.0 + GRACE_S - 0.1)
    assert {0x10, 0x11, 0x12} <= set(found.uplink.tree)
    found.collect(200.0 + GRACE_S)
    assert not {0x10, 0x11, 0x12} & set(found.uplink.tree)
    assert not found.is_waiting and not found.drift()
    assert found.steps[-1] == 'delete'


def test_a_class_that_the_kernel_keeps_is_deleted_now_and_then():
    """Such as one that a filter of others names; all is read after it."""
    found = started()
    found.set_policy(TWO, 200.0)
    found.uplink.refuses.add('delete_classes')
    found.uplink.asked.clear()
    n_refused = 0
    for now_s in (205.0 + step / 4 for step in range(40)):
        try:
            found.collect(now_s)
        except exception.KernelRefused:
            n_refused += 1
    assert n_refused == found.uplink.asked.count('delete_classes') == 2
    assert found.uplink.asked.count('snapshot') <= 2
    found.uplink.refuses.clear()
    found.reconcile(215.0)
    assert not {0x10, 0x11, 0x12} & set(found.uplink.tree)


@pytest.mark.parametrize('audit_s', [5.0, 1e9])
def test_classes_stay_while_the_classification_is_refused(audit_s):
    """Packets still come to them, at each uplink."""
    found, further = with_further()
    found.set_policy(ONE, 100.0)

    def refuse(name):
        if name == 'classify':
            raise exception.KernelRefused(what='classify', count=1, why='')

    found.step = refuse
    with pytest.raises(exception.KernelRefused):
        found.set_policy(TWO, 200.0)
    due_s = 200.0 + audit_s
    for now_s in (200.0 + step / 4 for step in range(1, 60)):
        if now_s >= due_s:
            found.forget()
            due_s = now_s + audit_s
        with contextlib.suppress(exception.KernelRefused):
            found.collect(now_s)
    for tree in found.uplink.tree, further.uplink.tree:
        assert {0x10, 0x11, 0x12} <= set(tree)
    # Their grace begins with the classification.
    found.step = lambda name: None
    found.reconcile(300.0)
    assert {0x10, 0x11, 0x12} <= set(found.uplink.tree)
    found.collect(300.0 + GRACE_S)
    for tree in found.uplink.tree, further.uplink.tree:
        assert not {0x10, 0x11, 0x12} & set(tree)


def test_classes_stay_after_a_restart_while_the_ports_are_unknown():
    """Packets of the old classification still come to them."""
    before = started()
    stood = set(before.uplink.tree)
    found = enforcers.Enforcer(
        before.uplink, before.classifier, speed_bps=lambda: LINK_BPS,
        grace_s=GRACE_S)
    found.set_policy(TWO, 200.0)
    for now_s in 200.0 + GRACE_S, 300.0:
        found.uplink.seen[0x11] = wire.ClassStats(10, 1, 500)
        found.sync(TWO, 0, None, now_s)
        found.adapt({minors.FIRST_PORT + 5: wire.ClassStats(
            10 ** 6, 10 ** 4, 0, 10 ** 4 + int(now_s))}, {}, now_s)
    found.uplink.seen.clear()
    for now_s in 400.0, 500.0:
        found.sync(TWO, 0, None, now_s)
    assert stood <= set(found.uplink.tree) and not found.is_waiting
    found.set_ports((PORT, AWAY), 600.0)
    found.collect(600.0 + GRACE_S)
    assert set(found.uplink.tree) == set(found.desired_tree())


def test_what_is_queued_is_sent_first_but_not_for_ever():
    found = started()
    found.uplink.seen[0x11] = wire.ClassStats(10, 1, 500)
    found.set_policy(TWO, 200.0)
    found.collect(201.0)
    found.collect(201.0 + GRACE_S)
    assert {0x10, 0x11} <= set(found.uplink.tree)
    assert 0x12 not in found.uplink.tree
    # As long as something waits it keeps what it needs.
    assert found.uplink.tree[0x11].rate_bps > model.IDLE_RATE_BPS
    found.uplink.seen[0x11] = wire.ClassStats(510, 2, 0)
    found.collect(300.0)
    assert found.uplink.tree[0x11].rate_bps == model.IDLE_RATE_BPS
    found.uplink.seen[0x11] = wire.ClassStats(510, 2, 500)
    found.collect(300.0 + GRACE_S)
    found.collect(300.0 + GRACE_S + 29.9)
    assert 0x11 in found.uplink.tree
    found.collect(300.0 + GRACE_S + 30)
    assert not {0x10, 0x11} & set(found.uplink.tree)


def test_a_class_that_comes_back_stays():
    found = started()
    found.set_policy(TWO, 200.0)
    found.set_policy(ONE, 202.0)
    found.collect(300.0)
    found.collect(400.0)
    assert found.uplink.tree == found.desired_tree()
    assert not found.is_waiting


def test_classes_under_other_parents_are_made_anew_at_once():
    """A destination's minor that is another coflow's now."""
    found = started()
    moved = test_tcplan.policy([
        test_tcplan.coflow(0x20, 8e6, (1.0,)), edge_policy.CoflowClass(
            'c30', 'c30', 0x30, 1e6, LINK_BPS, 0, (edge_policy.Destination(
                'h2', 0x11, 1.0, 1e6, LINK_BPS),))])
    found.set_policy(moved, 200.0)
    assert found.uplink.tree[0x11].parent == 0x10
    found.collect(201.0)
    found.collect(201.0 + GRACE_S)
    assert found.uplink.tree == found.desired_tree()
    assert found.uplink.tree[0x11].parent == 0x30


def test_what_others_changed_is_read_when_the_kernel_refuses():
    found = started()
    uplink = found.uplink
    uplink.tree.clear()
    uplink.present = False

    def refuse_once(classes, current):
        del uplink.set_classes
        raise exception.KernelRefused(
            what='change', count=1, why='told to')

    uplink.set_classes = refuse_once
    found.set_policy(structs.replace(TWO, generation=2), 200.0)
    assert uplink.tree == found.desired_tree()
    # A second refusal is told.
    uplink.refuses.add('set_classes')
    with pytest.raises(exception.KernelRefused):
        found.set_policy(ONE, 201.0)
    assert not found.tree.is_known
    asked = uplink.asked.count('snapshot')
    # It is not tried again before somebody says so.
    found.collect(201.5)
    assert uplink.asked.count('snapshot') == asked
    with pytest.raises(exception.KernelRefused):
        found.reconcile(202.0)
    assert uplink.asked.count('snapshot') == asked + 1
    uplink.refuses.clear()
    found.reconcile(203.0)
    found.collect(300.0)
    assert not found.drift()


def test_what_others_changed_is_read_when_counters_are_refused():
    """A leaf that leaves is asked what it has queued before any change."""
    found = started()
    uplink = found.uplink
    uplink.tree.clear()
    uplink.present = False

    def refuse_once():
        del uplink.class_stats
        raise exception.KernelRefused(what='read', count=1, why='told to')

    uplink.class_stats = refuse_once
    found.set_policy(structs.replace(TWO, generation=2), 200.0)
    assert uplink.tree == found.desired_tree()


def test_beside_somebody_elses_qdisc_coflows_are_counted():
    """In no class of theirs; the receiver's side goes on."""
    guard, received = Guard(), []
    found = started(guard=guard, receiver=types.SimpleNamespace(
        ensure=received.append, follow=lambda link_bps: None))
    key = classify.Entry(5, '10.0.0.1', '10.0.0.2')
    assert found.conflict is None
    assert found.classifier.table.entries == {key: 0x11}
    tree, asked = dict(found.uplink.tree), len(received)
    found.uplink.foreign = 'htb 1:'
    found.reconcile(200.0)
    assert 'up1' in found.conflict and 'htb 1:' in found.conflict
    assert found.classifier.table.entries == {key: 0x11}
    assert found.uplink.tree == tree and len(received) == asked + 1
    assert found.drift() == ['up1 has htb 1:']
    # Nothing waits, and readings change nothing.
    found.set_policy(TWO, 201.0)
    assert not found.is_waiting
    found.collect(300.0)
    found.observe({minors.FIRST_PORT + 5: wire.ClassStats(
        sent_bytes=6_400_000, sent_packets=100_000)}, 301.0)
    assert found.uplink.tree == tree
    found.uplink.foreign = None
    found.set_policy(ONE, 302.0)
    assert found.conflict is None
    assert found.classifier.table.entries == {key: 0x11}
    # The database may say so first, while our tree still stands.
    guard.error = exception.QdiscConflict(dev='up1', qdisc='linux-htb')
    found.reconcile(303.0)
    assert 'linux-htb' in found.conflict
    assert found.classifier.table.entries == {key: 0x11}
    guard.error = None
    found.reconcile(304.0)
    assert found.conflict is None and not found.drift()


def test_a_conflict_is_told_once_and_the_tree_read_after_it(caplog):
    guard = Guard()
    found = started(guard=guard)
    assert 'not shaped' not in caplog.text
    guard.error = exception.QdiscConflict(dev='up1', qdisc='linux-htb')
    for now_s in 200.0, 201.0:
        found.set_policy(TWO, now_s)
    assert caplog.text.count('not shaped: ') == 1
    guard.error = exception.QdiscConflict(dev='up1', qdisc='linux-codel')
    found.set_policy(TWO, 202.0)
    assert caplog.text.count('not shaped: ') == 2
    # The other program may have changed the tree.
    guard.error = None
    found.uplink.tree.clear()
    found.set_policy(ONE, 203.0)
    assert found.uplink.tree == found.desired_tree()


def test_grace_begins_with_the_reading_that_finds_a_queue_empty():
    found = started()
    found.uplink.seen[0x11] = wire.ClassStats(10, 1, 500)
    found.set_policy(TWO, 200.0)
    found.collect(201.0)
    assert found.uplink.tree[0x11].rate_bps > model.IDLE_RATE_BPS
    found.uplink.seen[0x11] = wire.ClassStats(510, 2, 0)
    port = minors.FIRST_PORT + 5
    found.observe({port: wire.ClassStats(150_000, 100, 0, 400)}, 300.0)
    assert found.uplink.tree[0x11].rate_bps == model.IDLE_RATE_BPS
    found.collect(300.0 + GRACE_S - 0.1)
    assert 0x11 in found.uplink.tree
    found.collect(300.0 + GRACE_S)
    assert 0x11 not in found.uplink.tree


def test_what_was_queued_before_a_hint_goes_at_a_part_of_its_rate():
    """Unmanaged traffic has a part of the class's guarantee meanwhile."""
    found = started(structs.replace(ONE, flows=()))
    own, before = minors.FIRST_PORT + 5, dict(found.uplink.tree)
    found.uplink.seen = {own: wire.ClassStats(100, 1, 5000)}
    found.set_policy(ONE, 101.0)
    assert {minor: item.rate_bps - before[minor].rate_bps
            for minor, item in found.uplink.tree.items()
            if item != before[minor]} == {
        minors.UNMANAGED: 7.5e6, 0x10: -7.5e6, 0x11: -7.5e6}
    assert found.is_waiting
    found.collect(101.5)
    assert found.uplink.tree != before
    found.uplink.seen = {own: wire.ClassStats(5100, 4, 8000)}
    found.collect(101.6)
    assert found.uplink.tree == before and not found.is_waiting


def test_drift_names_each_difference_and_changes_nothing():
    found = started()
    assert not found.drift()
    tree = found.uplink.tree
    del tree[0x21]
    tree[0x12] = dataclasses.replace(tree[0x12], rate_bps=16)
    tree[0x99] = dataclasses.replace(tree[0x12], minor=0x99)
    # How long turns are is no difference.
    port = minors.FIRST_PORT + 5
    tree[port] = dataclasses.replace(
        tree[port], quantum_bytes=2 * tree[port].quantum_bytes)
    before = dict(tree)
    found.classifier.table = classify.Table()
    drift = found.drift()
    assert tree == before
    assert [line.partition(' HtbClass')[0] for line in drift[:4]] == [
        'class 0x99 should be', 'class 0x12 should be', 'missing class 0x21',
        'surplus class 0x99']
    assert 'port tap1 is not classified' in drift[4:]


def test_turns_are_no_difference_for_ports_alone():
    found = started()
    tree, port = found.uplink.tree, minors.FIRST_PORT + 5
    for minor in port, 0x11:
        tree[minor] = dataclasses.replace(
            tree[minor], quantum_bytes=2 * tree[minor].quantum_bytes)
    (line,) = found.drift()
    assert line.startswith('class 0x11 should be')
    del tree[0x11], tree[port]
    assert set(found.drift()) == {
        'missing class 0x11', f'missing class {port:#x}'}


@pytest.mark.parametrize('n_past, unmanaged, n_limits', [
    (0, UNMANAGED, 2), (3, UNMANAGED, 2), (0, None, 0)])
def test_limits_hold_where_they_can_and_without_a_controller(
        n_past, unmanaged, n_limits):
    found = make()
    found.set_ports((PORT,), 100.0)
    found.set_policy(structs.replace(ONE, unmanaged=unmanaged), 100.0,
                     n_past)
    assert len(found.classifier.table.maps.get('to', ())) == n_limits


class Guard:
    def __init__(self):
        self.ensured, self.lost, self.error = 0, False, None
        self.sharer, self.reminded = None, 0

    def ensure(self):
        self.ensured += 1
        if self.error is not None:
            raise self.error

    def remind(self):
        self.reminded += 1

    def was_lost(self):
        return self.lost

    def remove(self):
        return self.ensured > 0


def test_queues_of_others_are_noted_and_hold_nothing_up():
    guard = Guard()
    found = started(guard=guard)
    assert found.note is None and not found.uplink.is_shared
    guard.sharer = 'OVN'
    found.set_policy(TWO, 101.0)
    assert found.uplink.is_shared and found.conflict is None
    assert found.note == (
        'OVN limits classes of up1: none now; packets of its queues are in no '
        'class of virtco')
    assert found.uplink.asked.count('ensure_root') == 2
    # Who was there may come back at any time.
    guard.sharer = None
    found.reconcile(102.0)
    assert not found.uplink.is_shared and found.note is not None
    guard.error = exception.QdiscConflict(dev='up1', qdisc='linux-codel')
    found.reconcile(103.0)
    assert found.note is None and 'linux-codel' in found.conflict


def test_who_shares_is_told_of_each_qdisc_that_is_made_in_its_place():
    """Open vSwitch fails where it comes second, and does not try again."""
    guard = Guard()
    found = started(guard=guard)
    assert not guard.reminded
    for number in range(1, 3):
        found.uplink.is_around_new = True
        found.uplink.refuses.add('snapshot')
        with pytest.raises(exception.KernelRefused):
            found.reconcile(100.0 + number)
        assert guard.reminded == number - 1
        found.uplink.refuses.clear()
        for _ in range(2):
            found.reconcile(110.0 + number)
            assert guard.reminded == number


def queue(ceil_bps, rate_bps=12000):
    """A class of another program around the tree."""
    return model.HtbClass(2, 0xfffe, rate_bps, ceil_bps, 0, 1514, None)


@pytest.mark.parametrize('rates_bps', [(), (12000,), (20e6, 30e6), (99e6,)])
def test_guarantees_and_those_of_queues_around_fit_the_link(rates_bps):
    """A queue that comes later lowers the coflows' guarantees."""
    guard = Guard()
    guard.sharer = 'OVN'
    found = started(guard=guard)
    usual_bps = found.uplink.tree[0x10].rate_bps
    found.uplink.around = {0xfffe: queue(34e9, 34e9), **{
        minor: queue(LINK_BPS, rate_bps)
        for minor, rate_bps in enumerate(rates_bps, 2)}}
    found.reconcile(101.0)
    found.collect(110.0)
    assert not found.drift()
    tree = found.uplink.tree
    coflows_bps = tree[0x10].rate_bps + tree[0x20].rate_bps
    room_bps = LINK_BPS - model.kept_bps(tree) - sum(rates_bps)
    assert coflows_bps == pytest.approx(
        min(48e6, max(0, room_bps)), abs=100)
    assert (tree[0x10].rate_bps < usual_bps) == (coflows_bps < 47e6)
    assert tree[0x10].ceil_bps == LINK_BPS
    found.uplink.around = {}
    found.reconcile(120.0)
    assert found.uplink.tree[0x10].rate_bps == usual_bps


def test_the_note_names_device_program_and_limit_of_each_other_shaper():
    guard = Guard()
    guard.sharer = 'OVN'
    capped = dataclasses.replace(PORT, caps_bps=(None, 2e9))
    found = make(guard=guard)
    found.uplink.around = {0xfffe: queue(20e6), 1: queue(LINK_BPS),
                           2: queue(5e6)}
    found.set_policy(ONE, 100.0)
    found.set_ports((capped, AWAY), 100.0)
    assert found.note == (
        'OVN limits classes of up1: 1:2 to 5 Mbit/s, 1:fffe to 20 Mbit/s; '
        'packets of its queues are in no class of virtco; '
        'libvirt or Neutron limits ports: tap1 to receive 2 Gbit/s')
    # A change of theirs is announced, and read again.
    found.uplink.around = {}
    found.set_ports([dataclasses.replace(capped, dev=f'tap{number}',
                                         caps_bps=(1e6, None))
                     for number in range(7)], 101.0)
    found.reconcile(102.0)
    assert 'none now' in found.note
    assert found.note.endswith('tap4 to send 1 Mbit/s and 2 more')


def test_functions_of_a_card_without_representors_follow_the_policy(
        monkeypatch):
    card = test_card_rates.Card()
    monkeypatch.setattr(virtual_functions, 'read', card.read)
    port = dataclasses.replace(test_card_rates.PORT, ips=('10.0.0.1',),
                               notes=(kinds.PASSED_THROUGH,))
    for wanted in (False, True):
        found = make(sets_functions=wanted)
        found.functions.kernel = card
        found.set_ports((port,), 100.0)
        found.set_policy(ONE, 100.0)
        assert bool(card.changes) == wanted
    assert card.rates[0] == (30, 0, 0)
    assert [one.notes for one in found.noted_ports()] == [
        (kinds.PASSED_THROUGH, virtual_functions.SET)]
    assert not found.drift()
    card.rates[0] = vf_rates.Rate(7, 0)
    assert 'share_mbps=30' in '; '.join(found.drift())
    # An audit sets it again; without the coflow it has none.
    found.reconcile(101.0)
    assert card.rates[0].share_mbps == 30
    found.set_policy(TWO, 102.0)
    assert not any(card.rates[0])
    found.set_policy(ONE, 103.0)
    assert 'rates of virtual functions' in found.cleanup()
    assert not any(card.rates[0])


@pytest.mark.parametrize('change, is_lost', [
    ({}, False), ({'devices': None}, True),
    ({'devices': frozenset({7})}, True), ({'devices': frozenset({8})}, False),
    ({'gone': frozenset({7})}, True), ({'gone': frozenset({8})}, False),
    ({'links': True}, False), ({'tables': True}, True)])
def test_what_is_not_ours_is_no_loss(change, is_lost):
    found = started(guard=Guard())
    found.forget()
    assert bool(found.was_lost(kernel_events.Changes(**change))) == is_lost
    assert found.guard.ensured == 2


def test_an_intermediate_device_that_was_set_down_is_a_loss():
    found = started(receiver=types.SimpleNamespace(
        is_down=False, ensure=lambda policy: None, follow=lambda bps: None))
    found.forget()
    links = kernel_events.Changes(links=True)
    assert not found.was_lost(links)
    found.receiver.is_down = True
    assert found.was_lost(links)


def test_each_part_may_be_lost():
    found = started(guard=Guard())
    found.forget()
    links = kernel_events.Changes(links=True)
    for lose in (
            lambda: setattr(found.uplink, 'longest_bytes', 9064),
            lambda: setattr(found.uplink, 'index', 8),
            lambda: setattr(found.uplink, 'index', 0)):
        lose()
        assert found.was_lost(links)
        assert not found.was_lost(kernel_events.Changes())
        found.forget()
        assert not found.was_lost(links)
    found.guard.lost = True
    assert found.was_lost(kernel_events.Changes())


def test_an_mtu_that_is_set_and_set_back_leaves_no_other():
    """Also where a reading changes the tree in between."""
    found = started(settings=CUTTING)
    found.uplink.longest_bytes = 9064
    found.reconcile(200.0)
    whole = {minor: item.packet_bytes
             for minor, item in found.uplink.tree.items()}
    assert 9064 in whole.values()
    found.uplink.longest_bytes = 1564
    port = minors.FIRST_PORT + 5
    found.observe({port: wire.ClassStats(150_000, 100, 0, 400)}, 201.0)
    found.uplink.longest_bytes = 9064
    assert not found.was_lost(kernel_events.Changes(links=True))
    assert whole == {minor: item.packet_bytes
                     for minor, item in found.uplink.tree.items()}


def test_the_frames_of_a_new_port_are_whole():
    found = started(settings=CUTTING)
    found.forget()
    found.set_ports((PORT, classify.VmPort('v3', 'lo', 1)), 200.0)
    assert 65536 + 64 in {item.packet_bytes
                          for item in found.uplink.tree.values()}


def test_the_longest_frame_is_that_of_any_port():
    found = make()
    assert found.desired_tree() is not None
    assert found._frame_bytes() == 1564
    found.ports = (classify.VmPort('v', 'lo', 1),
                   classify.VmPort('v', 'nobody', 9))
    assert found._frame_bytes() == 65536 + 64
    found.ports = (classify.VmPort('v', 'lo', 0),)
    assert found._frame_bytes() == 1564


def test_a_link_of_another_speed():
    speed = [LINK_BPS]
    found = started(speed_bps=lambda: speed[0])
    found.forget()
    assert found.link_bps == LINK_BPS
    speed[0] = 20e6
    assert found.was_lost(kernel_events.Changes(links=True))
    assert found.link_bps == LINK_BPS
    found.forget()
    assert found.link_bps == 20e6
    assert not found.tree.is_known and found.classifier.forgot == 2
    # Without the device nothing is known of its speed.
    found.uplink.index, speed[0] = 0, 1e6
    found.forget()
    assert found.link_bps == 20e6
    found.uplink.index = 7
    assert model.kept_bps(make(speed_bps=lambda: 20e6).desired_tree()
                          ) == pytest.approx(0.05 * 20e6, rel=1e-3)


def test_who_receives_data_has_turns_to_acknowledge_them():
    found = started()
    minor = minors.of_control(minors.FIRST_PORT + 5)
    usual = found.uplink.tree[minor].quantum_bytes
    found.classifier.readings.clear()
    found.observe({minor: wire.ClassStats(backlog_bytes=4000)}, 100.0)
    assert found.classifier.readings == []
    # Of queues beside the tree and of data nothing is known.
    found.observe({minor: wire.ClassStats(backlog_bytes=4000),
                   0x11: wire.ClassStats(backlog_bytes=4000),
                   -minor: wire.ClassStats(backlog_bytes=4000)}, 100.5)
    assert found.classifier.readings == []
    waiting = {minor: wire.ClassStats(backlog_bytes=4096)}
    dev = found.ports[0].dev
    for now_s in 101.0, 102.0:
        found.classifier.data_counts = {
            dev: model.Counts(int(now_s * found.link_bps / 8)),
            'gone': model.Counts()}
        found.observe(waiting, now_s)
    assert found.uplink.tree[minor].quantum_bytes == 128 * usual
    assert found.uplink.tree == found.desired_tree() and not found.drift()
    found.observe({}, 112.0)
    assert found.uplink.tree[minor].quantum_bytes == usual


def test_a_port_that_floods_has_shorter_turns():
    found = started()
    port = minors.FIRST_PORT + 5
    whole = found.uplink.tree[port].quantum_bytes
    seen = {port: wire.ClassStats(150_000, 100, 0, 400),
            0x11: wire.ClassStats(150_000, 100, 0, 400)}
    found.observe({}, 100.0)
    calls = len(found.uplink.asked)
    found.observe({port: wire.ClassStats(1500, 1)}, 101.0)
    assert len(found.uplink.asked) == calls
    found.observe(seen, 102.0)
    assert found.uplink.tree[port].quantum_bytes == whole / 16
    assert found.uplink.tree == found.desired_tree()
    empty = make()
    empty.observe(seen, 102.0)
    assert not empty.uplink.asked


def test_a_port_that_hears_nothing_has_shorter_turns(monkeypatch):
    """In its own class and in those of limits; others keep theirs."""
    found = started(structs.replace(
        ONE, unmanaged=edge_policy.Unmanaged(1e6)))
    own, limited = minors.FIRST_PORT + 5, minors.of_limited(0, 5)
    whole = found.uplink.tree[own].quantum_bytes
    asked = []
    monkeypatch.setattr(shaper.devices, 'sent_frames',
                        lambda dev: asked.append(dev) or 7)
    for now_s in (100.0, 101.0):
        found.observe({minor: wire.ClassStats(
            int(now_s) * 10 ** 7, 10 ** 5, 100) for minor in (
                own, limited, minors.FIRST_PORT + 6, minors.UNKNOWN)}, now_s)
    assert {minor: found.uplink.tree[minor].quantum_bytes / whole
            for minor in (own, limited, minors.UNKNOWN)} == {
        own: 1 / 16, limited: 1 / 16, minors.UNKNOWN: 1}
    assert asked == 2 * ['up1', 'tap1']


class Receiver:
    def __init__(self):
        self.policies = []

    def ensure(self, policy):
        self.policies.append(policy)

    def follow(self, egress_bps):
        self.egress_bps = egress_bps


def test_the_receiver_hears_of_policies_alone():
    found = make(receiver=Receiver())
    found.set_ports((PORT,), 100.0)
    assert not found.receiver.policies
    found.set_policy(ONE, 100.0)
    assert found.receiver.policies == [ONE]
    assert found.steps[-1] == 'receive'


def test_the_receiver_follows_the_speed_of_the_link():
    """Such as of a bond whose second member came after the start."""
    speed = [LINK_BPS]
    found = started(speed_bps=lambda: speed[0], receiver=Receiver())
    speed[0] = 2 * LINK_BPS
    found.reconcile(200.0)
    assert found.receiver.egress_bps == 2 * LINK_BPS


def _with_functions():
    """An enforcer whose ports 3 and 4 are virtual functions."""
    found = make()
    kernel = test_virtual_functions.Kernel()
    found.functions = virtual_functions.VirtualFunctions(kernel)
    found.set_ports([classify.VmPort('v1', f'tap{number}', number)
                     for number in (3, 4, 0)], 100.0)
    return found, kernel.rates


def test_virtual_functions_follow_the_policy():
    found, rates = _with_functions()
    one, two = rates
    found.set_policy(ONE, 101.0)
    # c16 has 40 of 100 Mbit/s, three quarters of them to h2.
    assert rates[one] == rates[two] == vf_rates.Rate(15, 0, 0x10)
    assert not found.drift() and not found.noted_ports()[0].notes
    found.set_policy(ONE, 102.0, n_past=1)
    # A quarter of what control and other packets leave of the link.
    assert rates[one].share_mbps == 23
    found.set_policy(TWO, 103.0)
    assert not any(rates[one])
    # Of another program; a comparison notices.
    found.set_policy(ONE, 104.0)
    rates[two] = vf_rates.Rate(0, 7)
    found.reconcile(105.0)
    assert [port.notes for port in found.noted_ports()] == [
        (), (virtual_functions.OTHERS,), ()]
    rates[one] = rates[one]._replace(share_mbps=1)
    found.functions.forget()
    assert 'share_mbps=15' in '; '.join(found.drift())
    assert 'rates of virtual functions' in found.cleanup()
    assert list(rates.values()) == [(0, 0, 0), (0, 7, 0)]


def test_cleanup_tells_what_was_there(monkeypatch):
    found = started(guard=Guard())
    assert found.cleanup() == [
        'dictionary classification', 'htb of up1', 'agreement about up1']
    assert found.classifier.table is None and not found.uplink.present
    found.guard.ensured = 0
    assert found.cleanup() == []
    monkeypatch.setattr('edge_module.qdisc.receiver.remove',
                        lambda dev: dev == 'up1')
    assert found.cleanup() == ['redirection of what up1 receives']


def test_a_card_that_refuses_keeps_nothing_else_in_place():
    def refuse():
        raise exception.KernelRefused(what='take back', count=1, why='busy')

    found = started()
    found.functions.remove = refuse
    with pytest.raises(exception.KernelRefused):
        found.cleanup()
    assert found.classifier.table is None and not found.uplink.present


def test_a_tree_that_is_known_is_not_read_again():
    found = started()
    asked = found.uplink.asked.count('snapshot')
    found.set_policy(TWO, 101.0)
    assert found.uplink.asked.count('snapshot') == asked
    found.uplink.index = 9
    found.set_policy(ONE, 102.0)
    assert found.uplink.asked.count('snapshot') == asked + 1
    found.reconcile(103.0)
    assert found.uplink.asked.count('snapshot') == asked + 2


def with_further(link_bps=25e6, **kwargs):
    """An enforcer, and what shapes its second uplink."""
    other = shaper.Shaper(dictionaries.Uplink('up2'), lambda: link_bps,
                          is_further=True, **kwargs)
    other.uplink.index = 9
    found = make(further=[other])
    other.grace_s = GRACE_S
    found.set_ports((PORT, AWAY), 100.0)
    return found, other


def test_each_uplink_has_the_classes_in_proportion():
    found, other = with_further()
    found.set_policy(ONE, 100.0)
    assert found.uplinks == (found, other)
    assert found.uplink.tree == found.desired_tree()
    assert other.uplink.tree == other.desired_tree()
    assert other.uplink.tree.keys() == found.uplink.tree.keys()
    for minor, item in other.uplink.tree.items():
        if item.rate_bps > model.IDLE_RATE_BPS:
            assert item.rate_bps == pytest.approx(
                found.uplink.tree[minor].rate_bps / 4, rel=1e-6)
        assert item.ceil_bps == pytest.approx(
            found.uplink.tree[minor].ceil_bps / 4, rel=1e-6)
    found.set_policy(TWO, 101.0)
    assert found.is_waiting and 0x10 in other.uplink.tree
    found.collect(101.0 + GRACE_S)
    assert other.uplink.tree == other.desired_tree()
    assert 0x10 not in other.uplink.tree and not found.is_waiting


def test_an_uplink_that_is_away_keeps_no_other_from_its_classes():
    found, other = with_further()
    other.uplink.index, stats = 0, other.uplink.stats
    other.uplink.stats = lambda _: other.uplink.ifindex()
    with pytest.raises(exception.NotFound, match='up2'):
        found.set_policy(ONE, 100.0)
    assert found.uplink.tree == found.desired_tree()
    assert found.classifier.table == found.desired_table()
    assert set(found.stats()) == set(found.uplink.tree)
    other.uplink.index, other.uplink.stats = 9, stats
    found.reconcile(101.0)
    assert other.uplink.tree == other.desired_tree()


def test_a_loss_at_any_uplink_is_one():
    found, other = with_further()
    found.forget()
    for index, is_lost in ((7, True), (8, False), (9, True)):
        assert bool(found.was_lost(kernel_events.Changes(
            devices=frozenset({index})))) == is_lost
    assert not other.tree.is_known
    found.set_policy(ONE, 100.0)
    assert other.tree.is_known
    found.forget()
    assert not other.tree.is_known


def test_counters_are_told_apart_by_uplink():
    found, other = with_further()
    found.set_policy(ONE, 100.0)
    found.uplink.seen = {0x11: wire.ClassStats(5)}
    other.uplink.seen = {0x11: wire.ClassStats(7)}
    for seen in (found.stats(), found.stats(with_drops=False)):
        assert seen[0x11].sent_bytes == 5
        assert seen[minors.FURTHER + 0x11].sent_bytes == 7
        assert len(seen) == 2 * len(found.uplink.tree)


def test_a_port_that_floods_at_one_uplink_has_shorter_turns_there():
    found, other = with_further()
    found.set_policy(ONE, 100.0)
    port = minors.FIRST_PORT + 5
    whole = found.uplink.tree[port].quantum_bytes
    seen = {minors.FURTHER + port: wire.ClassStats(150_000, 100, 0, 400)}
    found.observe({}, 100.0)
    found.observe(seen, 102.0)
    assert found.uplink.tree[port].quantum_bytes == whole
    assert other.uplink.tree[port].quantum_bytes == whole / 16


def test_all_uplinks_are_cleaned_up():
    found, other = with_further(guard=Guard())
    found.set_policy(ONE, 100.0)
    removed = found.cleanup()
    assert {'htb of up1', 'htb of up2', 'agreement about up2'} <= {*removed}
    assert not other.uplink.present


def test_an_uplink_that_is_away_keeps_nothing_from_being_cleaned_up():
    found, other = with_further(guard=Guard())
    found.set_policy(ONE, 100.0)
    other.uplink.index, other.uplink.delete_root = 0, other.uplink.ifindex
    assert {'htb of up1', 'agreement about up2'} <= {*found.cleanup()}
    assert not found.uplink.present
