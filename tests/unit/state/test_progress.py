# SPDX-License-Identifier: Apache-2.0

"""How coflows get on by reports: profiles, queues, and what is urgent."""

import math

import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from virtco.model import states
from virtco.scheduling import endings
from virtco.state import byte_counters
from virtco.state import live_state
from virtco.state import schedule_input
from virtco.topology import tree

STATE = states.CoflowState
PORTS = known.PORTS


def lives(hosts=('h0', 'h1', 'h2'), given=schedule_input.Rules(), **values):
    found = live_state.LiveState(given)
    found.load_groups([known.member('g', i, host)
                       for i, host in enumerate(hosts)],
                      [known.stored(**values)])
    return found


@pytest.fixture
def state():
    return lives()


def with_pairs(report, src, **bytes_of):
    """:param bytes_of: what row ``src`` sent to rows, as r1=5."""
    return made.replaced(report, ports=[PORTS[src]], pairs=[
        {'dev': f'tap{src}', 'src_ip': f'10.0.0.{src}',
         'dst_ip': f'10.0.0.{row[1:]}', 'sent_bytes': size}
        for row, size in bytes_of.items()])


def test_bytes_of_classes_are_divided_among_pairs(state):
    for row in (1, 2):
        state.intake(f'h{row}', made.report(ports=[PORTS[row]]), 0.5)
    state.intake('h0', with_pairs(known.report(40), 0, r1=10, r2=30), 1.0)
    state.intake('h0', with_pairs(known.report(100), 0, r1=10, r2=30), 2.0)
    # Once for both reports: by the pairs' counters where there are any.
    assert state.take_profiles() == {'g': {(0, 1): 25.0, (0, 2): 75.0}}
    assert state.take_profiles() == {}


@pytest.mark.parametrize(('is_estimated', 'shares'), [
    (True, [25.0, 75.0]), (False, [200 / 3, 100 / 3])])
def test_flows_of_unknown_sizes_get_on_as_their_pairs_do(is_estimated,
                                                         shares):
    """Others by what they have left."""
    state = lives(('h0', 'h1', 'h1'), is_estimated=is_estimated)
    state.intake('h1', made.report(ports=[PORTS[1], PORTS[2]]), 0.5)
    state.intake('h0', with_pairs(known.report(100), 0, r1=10, r2=30), 1.0)
    assert list(known.sent(state))[:2] == (
        pytest.approx(shares))


def test_a_coflow_sends_while_a_hosts_last_report_has_bytes_of_it(state):
    def is_sending():
        one, = state.snapshot(schedule_input.Options(), 9.0).coflows
        return one.sent_bps is not None

    reported = []
    for host, sent, backlog, expected in (
            ('h0', 0, 0, False), ('h1', 5, 0, True), ('h0', 0, 0, True),
            ('h0', 7, 0, True), ('h1', 5, 0, True), ('h0', 7, 0, False),
            ('h0', 7, 3, True), ('h0', 7, 3, True), ('h0', 7, 0, False)):
        reported.append(None)
        state.intake(host, known.report(sent, backlog=backlog),
                     1.0 + len(reported) / 10)
        assert is_sending() is expected


def test_rates_are_of_pairs_and_bytes_that_wait_are_more_than_any(state):
    def sent_bps():
        one, = state.snapshot(schedule_input.Options(), 9.0).coflows
        return dict(zip(one.table.pairs, one.sent_bps.tolist()))

    nothing = known.report(destinations={'h1': 0, 'h2': 0})
    state.intake('h0', nothing, 1.0)
    state.intake('h0', known.report(destinations={'h1': 5, 'h2': 0}), 1.5)
    found = sent_bps()
    assert found[('h0', 'h1')] == pytest.approx(5 * 8 / 0.5)
    assert found[('h0', 'h2')] == found[('h1', 'h2')] == 0
    # Told in all, it is anybody's.
    state.intake('h1', known.report(0), 1.5)
    state.intake('h1', known.report(6), 2.0)
    assert sent_bps()[('h1', 'h2')] == pytest.approx(6 * 8 / 0.5)
    state.intake('h0', known.report(
        backlog=7, destinations={'h1': 5, 'h2': 0}), 2.0)
    assert sent_bps()[('h0', 'h1')] == sent_bps()[('h0', 'h2')] == math.inf


def test_who_has_no_vm_of_a_coflow_does_not_send_it(state):
    state.intake('x', known.report(5), 1.0)
    state.intake('x', known.report(9), 2.0)
    one, = state.snapshot(schedule_input.Options(), 2.0).coflows
    assert one.sent_bps is None


def test_where_no_vm_is_any_more_a_coflow_does_not_send(state):
    state.intake('h0', known.report(5), 1.0)
    state.load_groups([known.member('g', 0, 'h3')], [known.stored()],
                      only={'g'})
    one, = state.snapshot(schedule_input.Options(), 1.5).coflows
    assert one.sent_bps is None


def test_without_counters_pairs_are_divided_by_what_is_left(state):
    state.intake('h0', known.report(30), 1.0)
    state.intake('h1', known.report(5), 1.0)
    assert state.take_profiles() == {'g': pytest.approx({
        (0, 1): 20.0, (0, 2): 10.0, (1, 2): 5.0})}


def test_a_destination_is_one_pair_and_headers_do_not_count():
    state = lives(given=schedule_input.Rules(wire_overhead_fraction=0.25))
    state.intake('h0', known.report(destinations={'h2': 25, 'h1': 5}), 1.0)
    state.intake('h0', known.report(destinations={'h2': 50, 'h1': 5}), 2.0)
    assert state.take_profiles() == {'g': {(0, 2): 40.0, (0, 1): 4.0}}


def test_pairs_inside_of_a_host_are_unseen():
    state = lives(('h0', 'h0', 'h1'))
    state.intake('h0', known.report(30), 1.0)
    assert state.take_profiles() == {'g': pytest.approx({
        (0, 1): -1.0, (0, 2): 20.0, (1, 2): 10.0})}


def test_bytes_are_divided_before_their_coflow_ends(state):
    state.intake('h1', known.report(5), 1.0)
    state.finish('c', 2.0)
    assert state.take_profiles() == {'g': {(1, 2): 5.0}}


def test_bytes_are_divided_before_their_host_is_forgotten(state):
    state.intake('h0', known.report(30), 1.0)
    state.forget_hosts({'h0'})
    assert state.take_profiles() == {'g': pytest.approx({
        (0, 1): 20.0, (0, 2): 10.0})}


def test_bytes_are_divided_before_their_pairs_change(state):
    """What came before a move is of the pairs before it."""
    state.intake('h0', known.report(destinations={'h2': 30}), 1.0)
    state.load_groups([known.member('g', 0, 'h0'),
                       known.member('g', 1, 'h2'),
                       known.member('g', 2, 'h1')], [known.stored()], {'g'})
    state.intake('h0', known.report(destinations={'h2': 40}), 2.0)
    assert state.take_profiles() == {'g': {(0, 2): 30.0, (0, 1): 10.0}}
    # Of another group nothing is divided yet.
    state.intake('h0', known.report(destinations={'h2': 45}), 3.0)
    state._progress.spread({'other'})
    assert not state._progress.profiles
    state._progress.spread({'g'})
    assert state._progress.profiles == {'g': {(0, 1): 5.0}}


def test_of_a_coflow_that_was_dropped_nothing_is_divided(state):
    state.intake('h0', known.report(30), 1.0)
    state.drop('c')
    assert state.take_profiles() == {}
    assert state._progress._unspread == {}


def test_what_could_not_be_kept_is_given_back(state):
    state.intake('h1', known.report(5), 1.0)
    state.give_back_profiles(state.take_profiles())
    state.intake('h1', known.report(7), 2.0)
    assert state.take_profiles() == {'g': {(1, 2): 7.0}}


def test_pairs_without_classes_are_in_profiles(state):
    state.count_pairs(True)
    for row in range(3):
        state.intake(f'h{row}', known.pair_report(row), 0.5)
    state.intake('h0', known.pair_report(0, (1, 30), (2, 50)), 1.0)
    assert state.take_profiles() == {'g': {(0, 1): 30.0, (0, 2): 50.0}}


def test_a_pair_that_has_an_owner_is_counted_once(state):
    """The peers of a port tell of the same bytes."""
    state.count_pairs(True)
    for row in range(3):
        state.intake(f'h{row}', known.pair_report(row), 0.5)

    def report(size):
        return made.replaced(known.pair_report(0, (1, size)), peers=[
            {'dev': 'tap0', 'dst_ip': f'10.0.0.{row}', 'sent_bytes': size,
             'sent_packets': 0} for row in (1, 0)])

    state.intake('h0', report(10), 1.0)
    state.intake('h0', report(30), 2.0)
    assert state.take_profiles() == {'g': {(0, 1): 30.0}}


def test_the_pairs_of_what_is_over_are_those_of_the_next(state):
    state.load_groups(
        [known.member('g', i, f'h{i}') for i in range(3)],
        [known.stored(name, flows='[[0,1,100]]') for name in 'ab'])
    state.count_pairs(True)
    for row in range(3):
        state.intake(f'h{row}', known.pair_report(row), 0.5)
    state.intake('h0', known.pair_report(0, (1, 30)), 1.0)
    state.finish('a', 1.5)
    state.intake('h0', known.pair_report(0, (1, 50)), 2.0)
    assert {name: status.sent_bytes for name, status
            in state.statuses().items()} == {'a': 30.0, 'b': 20.0}


def test_the_pairs_of_what_begins_are_its_own():
    state = lives(state=STATE.PLANNED, iteration=0)
    state.count_pairs(True)
    for row in range(3):
        state.intake(f'h{row}', known.pair_report(row), 0.5)
    assert known.advance(state, 1.0) == [STATE.ACTIVE]
    state.intake('h0', known.pair_report(0, (1, 30)), 2.0)
    assert state.status('c').sent_bytes == 30.0


def test_peers_of_a_vm_are_those_of_its_group(state):
    state.load_groups(
        [known.member('g', i, f'h{i}') for i in range(2)]
        + [known.member('k', 4, 'h0')], [known.stored()])
    ports = [PORTS[0], {'vm': 'k-4', 'dev': 'tap9', 'ips': ['10.0.0.4']}]

    def report(size):
        return made.replaced(known.report(0, ports=ports), peers=[
            {'dev': dev, 'dst_ip': f'10.0.0.{row}', 'sent_bytes': size,
             'sent_packets': 0}
            for dev, row in (('tap0', 1), ('tap0', 4), ('tap9', 1))])

    state.intake('h1', made.report(ports=[PORTS[1]]), 0.5)
    state.intake('h0', report(0), 1.0)
    state.intake('h0', report(8), 2.0)
    assert state.take_profiles() == {'g': {(0, 1): 8.0}}


def test_an_empty_queue_may_be_the_end(state):
    state.intake('h0', known.report(150), 1.0)
    state.intake('h1', known.report(24.9, backlog=5), 1.0)
    # More waits: that is no reason to hurry.
    assert not state.intake('h1', known.report(24.9, backlog=9), 1.1)
    assert state.intake('h1', known.report(24.9), 1.2)
    assert not state.intake('h1', known.report(24.9), 1.3)
    # Of a coflow that has more to send it is none.
    other = lives()
    other.intake('h1', known.report(5, backlog=5), 1.0)
    assert not other.intake('h1', known.report(5), 1.1)


def test_a_queue_of_no_known_coflow(state):
    assert state.intake('h1', known.report(5, coflow_id='x', backlog=5), 1.0)
    assert not state.intake('h1', known.report(6, coflow_id='x', backlog=9),
                            1.1)
    assert state.statuses()['c'].sent_bytes == 0


def test_how_pairs_are_counted_changes_what_silence_means(state):
    for wanted, quiet_s in ((True, 30.0), (True, 30.0), (False, 1.0)):
        state.count_pairs(wanted)
        assert state._progress.endings.quiet_s == quiet_s
    slow = lives(given=schedule_input.Rules(
        ending=endings.Rules(quiet_s=60.0)))
    slow.count_pairs(True)
    assert slow._progress.endings.quiet_s == 60.0


def test_a_change_of_counting_is_seen_at_once(state):
    before = known.seen(state._groups.coflows['c'])
    state.count_pairs(False)
    assert known.seen(state._groups.coflows['c']) is before
    state.count_pairs(True)
    assert known.seen(state._groups.coflows['c']) is not before


def test_an_expired_coflow_is_over():
    state = lives(expires_at=10.0)
    assert known.advance(state, 9.9) == []
    assert known.advance(state, 10.0) == [STATE.DONE]
    assert known.advance(state, 11.0) == []


def test_counters_of_what_is_over_are_forgotten(state):
    for host in ('h0', 'h1', 'h9'):
        state.intake(host, known.report(5), 1.0)
    # What h9 cannot know was not kept.
    state.finish('c', 2.0)
    kept = {name: 'c' in host.counters.values
            for name, host in state._hosts.items()}
    assert kept == {'h0': False, 'h1': False, 'h9': False}
    state.finish('c', 3.0)
    assert state.status('c').ended_s == 2.0


def test_what_a_host_makes_up_is_not_counted_for_good(state, monkeypatch):
    """Nor is what is over, whose class is there for a moment more."""
    monkeypatch.setattr(byte_counters, 'MANY_COUNTERS', 4)
    state.intake('h0', known.report(10), 0.5)
    for number in range(50):
        state.intake('h0', made.report(coflows=[
            {'coflow_id': f'over-{number}', 'sent_bytes': 5}]), 1.0 + number)
        state.intake('h0', made.report(coflows=[{
            'coflow_id': 'c', 'sent_bytes': 10, 'destinations': [
                {'host': f'nowhere-{number}', 'sent_bytes': 1}]}]),
            1.5 + number)
    counters = state._hosts['h0'].counters
    assert len(counters.values) <= 9
    # A class of a coflow in flight may come back and count on.
    state.intake('h0', made.report(), 60.0)
    before_bytes = sum(known.sent(state))
    state.intake('h0', known.report(11), 61.0)
    assert sum(known.sent(state)) - before_bytes == pytest.approx(1.0)


def test_bytes_are_summed_up_when_enough_were_counted(state):
    """And not with each report."""
    tracked = state._groups.coflows['c']

    def sums_up(host, sent_bytes, now_s):
        state.intake(host, known.report(sent_bytes), now_s)
        return 'crossing_bytes' in tracked.__dict__

    state.intake('h0', known.report(30), 1.0)
    assert sums_up('h0', 31, 1.1)
    assert not sums_up('h0', 60, 1.2) and not sums_up('h0', 150, 1.3)
    # As many bytes as were left have been counted since.
    assert state.intake('h1', known.report(25), 1.4)
    assert tracked.is_all_sent(endings.Rules())


def test_an_overrun_is_owed_by_its_project(state):
    state.intake('h1', known.report(30), 1.0)
    state.intake('h0', known.report(232.5), 1.0)
    assert state.debts() == {}
    state.intake('h0', known.report(240), 2.0)
    assert state.debts() == {'p': 7.5}
    # What is deleted owes on, and counts anew if it comes again.
    state.drop('c')
    state.drop('unknown')
    assert state.debts() == {'p': 7.5}
    everyone = [known.member('g', i, f'h{i}') for i in range(3)]
    state.load_groups(everyone, [known.stored()])
    state.intake('h0', known.report(270, epoch='f'), 3.0)
    assert state.debts() == {'p': 7.5}
    # So does what the database does not have any more.
    state.load_groups(everyone, [])
    state.load_groups(everyone, [known.stored()])
    state.intake('h0', known.report(270, epoch='g'), 4.0)
    assert state.debts() == {'p': 7.5}


def test_each_iteration_is_charged_for_its_own_overrun():
    state = lives(('h0', 'h1'), flows='[[0,1,1000000]]', n_vms=2,
                  iterations=2)
    # Both may send 2 MB, and half as much beyond.
    state.intake('h0', known.report(3_100_000), 1.0)
    assert state.debts() == {'p': 100_000.0}
    assert known.advance(state, 1.0) == [STATE.DONE]
    state.intake('h0', known.report(3_600_000), 10.0)
    assert known.advance(state, 10.0) == [STATE.ACTIVE]
    # What is paid off comes back, since the last may send 1.5 MB.
    state.intake('h0', known.report(4_700_000), 11.0)
    assert state.debts() == {'p': 100_000.0}


def test_remaining_fractions(state):
    state.intake('h0', known.report(35), 1.0)
    assert state.remaining_fraction('c') == pytest.approx(0.8)
    assert state.remaining_fraction('x') == 1.0
    assert [one.coflow_id for one in state.loads()] == ['c']
    assert state.loads('g') == ()
    assert state._groups.awaited_hosts() == set()


def test_trees_in_payload_and_on_the_wire():
    plane = tree.Plane(roots=(tree.Node(
        'r', ('h0', 'h1'), uplink=tree.Uplink(1e9, 3e9)),))
    given = schedule_input.Rules(wire_overhead_fraction=0.25,
                        share=schedule_input.Share(0.2))
    state = live_state.LiveState(given, plane=lambda: plane)
    state.set_poor_uplinks({'r': (0.5e9, 2e9)})

    def uplink(found):
        (one,) = found.subtrees
        return one.uplink_out_bps, one.uplink_in_bps

    assert uplink(state.payload_tree(1.0)) == pytest.approx(
        (0.5e9 * 0.8 / 1.25, 2e9 * 0.8 / 1.25))
    assert uplink(state.wire_tree(1.0)) == pytest.approx((0.5e9, 2e9))
    assert uplink(state.wire_tree(1.0, nominal=True)) == (1e9, 3e9)


@pytest.mark.parametrize(('h1_bps', 'send_s'), [(200e6, 0.1), (50e6, 0.2)])
def test_computing_is_bounded_by_the_links(h1_bps, send_s):
    """Rates in payload: 1 MB takes 0.1 s out of h0, 0.05 or 0.2 s into h1."""
    state = lives(('h0', 'h1'),
                  schedule_input.Rules(wire_overhead_fraction=0.25),
                  flows='[[0,1,1000000]]', n_vms=2, iterations=0,
                  compute_s=9.0)
    for host, egress_bps, ingress_bps in (('h0', 100e6, 1e6),
                                          ('h1', 1e6, h1_bps)):
        state.intake(host, made.report(link={
            'egress_bps': egress_bps, 'ingress_bps': ingress_bps}), 1.0)
    state.views(1.0)
    tracked = state._groups.coflows['c']
    tracked.period.least_s = 2.0
    state._progress.measured |= {'c', 'gone'}
    state.advance(1.0)
    assert tracked.compute_s == pytest.approx(2.0 * 1.05 - send_s)
    assert state._progress.measured == set()
    (told,) = state.take_unsaved().findings
    assert told.coflow_id == 'c' and state.count_overstating() == 1


@pytest.mark.parametrize('nominal', [False, True])
def test_a_tree_counts_on_the_newest_links(nominal):
    plane = tree.Plane(roots=(tree.Node(
        'r', ('h0',), uplink=tree.Uplink(oversubscription=4)),))
    state = live_state.LiveState(plane=lambda: plane)
    for egress_bps in (8e9, 4e9):
        state.intake('h0', made.report(link={
            'egress_bps': egress_bps, 'ingress_bps': 2e9}), 1.0)
        (one,) = state.wire_tree(1.0, nominal).subtrees
        assert (one.uplink_out_bps, one.uplink_in_bps) == pytest.approx(
            (egress_bps / 4, 0.5e9))


def test_addresses_of_vms(state):
    state.intake('h0', made.report(ports=[PORTS[0]]), 1.0)
    assert state.addresses_of(['g-0', 'g-1']) == [('10.0.0.0',), ()]


def test_a_beta_of_zero_is_none_that_is_observed(state):
    for now_s, uplink in ((10.0, 0), (11.0, 1e6)):
        state.intake('h0', known.report(0, uplink=uplink), now_s)
    assert state.snapshot(schedule_input.Options(), 11.0).size_factor == (
        pytest.approx(1.08))
    assert state.snapshot(schedule_input.Options(beta=0.0), 11.0
                          ).size_factor == 1.0
