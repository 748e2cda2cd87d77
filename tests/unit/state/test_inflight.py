# SPDX-License-Identifier: Apache-2.0

"""One coflow in flight: what it has left, when it begins, ends and rests."""

import math

import numpy as np
import pytest

from tests.unit.state import test_live_state as known
from virtco.model import live as live_model
from virtco.model import snapshot as model
from virtco.model import states
from virtco.scheduling import endings
from virtco.state import byte_counters
from virtco.state import coflow_ends
from virtco.state import inflight
from virtco.state import remaining_flows
from virtco.state import route
from virtco.state import schedule_input
from virtco.state import summary
from virtco.wire import reports

STATE = states.CoflowState
RULES = endings.Rules(quiet_s=2.0, start_bytes=1000.0)
#: Rows and columns differ: [0, 1] 4 MB, [0, 2] 2 MB, [1, 2] 1 MB.
FLOWS = '[[0,1,4000000],[0,2,2000000],[1,2,1000000]]'
HOSTS = 'h0', 'h1', 'h2'


def members(*hosts, running=True):
    return {row: route.Member(f'vm{row}', host, running)
            for row, host in enumerate(hosts)}


def tracked(hosts=HOSTS, **values):
    found = summary.load(known.stored(**{'tm': FLOWS} | values))
    found.place(members(*hosts))
    return found


def job(**values):
    return tracked(**{'iterations': 0, 'compute_s': 3.0} | values)


def send(found, src, size_bytes, since_s, now_s, dst=None):
    found.counting.credit(found.route.flows(src, dst), size_bytes)
    found.credited(size_bytes, since_s, now_s, RULES)


def test_what_is_stored_is_loaded():
    found = tracked(
        why='ended: expired', priority_class=3, weight=2.5, arrival=7.0,
        cct_s=9.0, ended_at=8.0, expires_at=99.0, iteration=4, iterations=6,
        progress='[5, 6]', first_byte_at=10.0, last_byte_at=14.0,
        measured_cct_error_s=1.0)
    assert (found.coflow_id, found.group_id, found.project_id, found.name,
            found.state) == ('c', 'g', 'p', 'c', STATE.ACTIVE)
    assert (found.priority_class, found.weight, found.arrival_s,
            found.planned_cct_s, found.ended_s, found.expires_s,
            found.iteration) == (3, 2.5, 7.0, 9.0, 8.0, 99.0, 4)
    assert found.progress.sent_bytes.tolist() == [5, 6, 0]
    assert found.progress.span == byte_counters.Span((9.5, 10.5),
                                                     (13.5, 14.5))
    assert found.moved_s is None and found.upcoming is None
    assert found.why == 'ended: expired'
    for missing in ('first_byte_at', 'last_byte_at', 'measured_cct_error_s'):
        assert tracked(**{'first_byte_at': 1.0, 'last_byte_at': 2.0,
                          'measured_cct_error_s': 0.5, missing: None}
                       ).progress.span is None
    # What has ended rests until its next iteration.
    assert tracked(state=STATE.DONE, iterations=0).upcoming is not None
    assert isinstance(tracked(is_estimated=True).progress,
                      byte_counters.Estimated)
    assert not isinstance(found.progress, byte_counters.Estimated)


def test_a_coflow_that_is_not_told_otherwise():
    found = tracked()
    assert (found.iteration, found.priority_class, found.weight) == (
        1, 0, 1.0)
    bare = inflight.Tracked('c', 'g', 'p', 'n', STATE.ACTIVE, found.model,
                            found.progress)
    assert (bare.iteration, bare.priority_class, bare.weight,
            bare.was_placed, bare.is_dirty, bare.is_promised) == (
                0, 0, 1.0, False, False, False)
    assert bare.check_s == -math.inf and bare.most_compute_s == math.inf


def test_the_load_is_by_pair_and_end():
    found = tracked()
    assert found.load == model.ActiveCoflow(
        'c', (('h0', 6e6), ('h1', 1e6)), (('h1', 4e6), ('h2', 3e6)),
        (('h0', 'h1', 4e6), ('h0', 'h2', 2e6), ('h1', 'h2', 1e6)))
    send(found, 'h0', 3e6, 1.0, 2.0)
    assert found.load.out_bytes == (('h0', 3e6), ('h1', 1e6))
    # A tail of what was sent is never taken for gone.
    send(found, 'h0', 3e6, 2.0, 3.0)
    assert found.load.pairs == (('h0', 'h1', 2e4), ('h0', 'h2', 1e4),
                                ('h1', 'h2', 1e6))


def test_a_load_has_the_hosts_by_name():
    found = tracked(('z', 'b', 'a'))
    assert found.load.out_bytes == (('b', 1e6), ('z', 6e6))
    assert found.load.in_bytes == (('a', 3e6), ('b', 4e6))
    assert found.awaited_hosts == frozenset()
    found.place(members('z', 'b', 'a') | {
        2: route.Member(None, 'a', False)})
    assert found.awaited_hosts == {'z', 'b', 'a'}
    assert found.route.pairs == (('z', 'b'),)
    assert found.load.in_bytes == (('a', 3e6), ('b', 4e6))


def shown(found, addresses=None, **rest):
    return remaining_flows.shown(found, (), RULES, addresses or {}, **rest)


def live(found, strangers=()):
    return remaining_flows.shown(found, strangers, RULES, {}).live


def left(found, strangers=()):
    return live(found, strangers).flows.remaining_bytes.tolist()


def test_the_scheduler_sees_what_is_left():
    found = tracked(priority_class=2, weight=3.0, arrival=5.0)
    seen = live(found)
    assert (seen.coflow_id, seen.priority_class, seen.weight, seen.n_flows,
            seen.workers) == ('c', 2, 3.0, 3, 3)
    assert (seen.arrival_s, seen.served_s, seen.sent_bytes,
            seen.compute_s) == (5.0, 5.0, 0.0, 0.0)
    assert left(found) == [4e6, 2e6, 1e6]
    assert seen.whole.remaining_bytes.tolist() == [4e6, 2e6, 1e6]
    assert live(found) is seen and seen.sending is seen.served is None
    send(found, 'h0', 3e6, 8.0, 9.0)
    assert left(found) == [2e6, 1e6, 1e6]
    assert (live(found).served_s, live(found).sent_bytes) == (9.0, 3e6)
    assert live(found).whole.remaining_bytes.tolist() == [4e6, 2e6, 1e6]
    assert live(tracked(arrival=None)).served_s == 0.0
    assert live(tracked(arrival=None)).arrival_s == 0.0
    assert live(job()).compute_s == 3.0


def test_flows_of_strangers_wait_and_delay_nobody():
    found = tracked()
    assert left(found, {'h1'}) == [0, 2e6, 0]
    assert live(found).whole is None
    assert left(tracked(), {'h2'}) == [4e6, 0, 0]
    assert left(tracked(), {'h9'}) == [4e6, 2e6, 1e6]
    assert live(tracked(is_estimated=True)).whole is None


def test_where_all_was_sent_the_queues_are_left():
    found = tracked()
    send(found, 'h0', 6e6, 1.0, 2.0)
    send(found, 'h1', 1e6 - 7000, 1.0, 2.0)
    # A thousandth of all may be what counters get wrong.
    assert left(found) == [0, 0, 0]
    found.sending.take('h0', reports.CoflowCounters('c', 6e6,
                                                   backlog_bytes=900))
    found.touch()
    assert left(found) == pytest.approx([600, 300, 0])
    once = tracked()
    send(once, 'h0', 6e6, 1.0, 2.0)
    send(once, 'h1', 1e6 - 7001, 1.0, 2.0)
    assert left(once) == [2e4, 1e4, 7001]


@pytest.mark.parametrize(('times', 'more'), [
    (1.5, 0.5), (1.99, 0.01), (2.5, 1.5), (7.0, 1.0)])
def test_who_sends_beyond_its_hint_is_expected_to_double_it(times, more):
    """Twice, then four times, …: a guess that shrinks while it sends."""
    found = tracked()
    send(found, 'h0', times * 6e6, 1.0, 2.0)
    send(found, 'h1', times * 1e6, 1.0, 2.0)
    assert left(found) == pytest.approx(
        [more * 4e6, more * 2e6, more * 1e6])
    # What it sent, of which its hint named a part, is what it is served by.
    assert live(found).served.remaining_bytes.sum() == pytest.approx(
        times * 7e6)


def test_beyond_the_hint_only_those_that_send_are_expected_to_go_on():
    found = tracked()
    send(found, 'h0', 9e6, 1.0, 2.0)
    for now_s in (3.0, 4.0):
        send(found, 'h1', 1.5e6, now_s - 1, now_s)
    # Of the 14 MB that are expected 12 MB came, and those of h0 rest.
    assert left(found) == pytest.approx([0, 0, 2 / 7 * 1e6])


def test_whose_project_owes_is_served_by_what_it_sent():
    found = tracked()
    send(found, 'h0', 3e6, 1.0, 2.0)
    assert live(found).served is None
    served = shown(found, in_debt=True).live.served
    assert served.remaining_bytes.tolist() == [2e6, 1e6, 0]


def test_what_is_shown_is_made_once():
    found = tracked()
    one = shown(found)
    assert shown(found) is one
    assert not one.is_queued and not one.is_resting
    assert one.moved_s is None
    found.sending.take('h0', reports.CoflowCounters('c', 0, backlog_bytes=1))
    found.touch()
    assert shown(found).is_queued
    found.rest()
    assert shown(found).is_resting
    assert isinstance(shown(found), schedule_input.Coflow)


def test_the_table_has_hosts_and_addresses():
    found = tracked(dst_port=99)
    free = (math.inf, math.inf)
    addresses = {'vm0': ('h0', ('10.0.0.1',), free, ('m0',)),
                 'vm2': ('h2', ('10.0.0.3',), free, ('m2', 'm3'))}
    table = shown(found, addresses).table
    assert shown(found).table is table
    assert table.pairs == found.route.pairs
    (first, second), (third,) = table.flows['h0'], table.flows['h1']
    assert (first.src_ips, first.dst_host, first.dst_ips) == (
        ('10.0.0.1',), 'h1', ())
    assert (second.src_ips, second.dst_ips) == (
        ('10.0.0.1',), ('10.0.0.3',))
    assert (first.dst_macs, second.dst_macs) == ((), ('m2', 'm3'))
    assert table.macs == {'h2': ('m2', 'm3')}
    assert (third.src_vm, third.src_host, third.src_ips) == ('vm1', 'h1', ())
    found.readdress()
    assert shown(found).table is not table
    # Of VMs on one host no uplink sees anything.
    assert shown(tracked(('h0', 'h0', 'h1'))).table.pairs == (
        ('h0', 'h1'),)


def test_a_place_is_another_only_where_it_is_another():
    found = tracked()
    before, table = found.route, shown(found).table
    found.place(members(*HOSTS))
    assert found.route is before and shown(found).table is table
    found.place(members('h0', 'h1', 'h0'))
    assert found.route.pairs == (('h0', 'h1'), ('h1', 'h0'))
    assert shown(found).table is not table


@pytest.mark.parametrize(('iterations', 'iteration', 'has_more', 'claimed'), [
    (1, 0, True, 2), (1, 1, False, 1), (3, 1, True, 3), (3, 3, False, 1),
    (2, 3, False, 0), (0, 7, True, 0)])
def test_what_is_claimed_is_for_all_that_is_to_come(iterations, iteration,
                                                    has_more, claimed):
    found = tracked(iterations=iterations, iteration=iteration)
    assert found.has_more is has_more
    assert found.claimed_bytes == claimed * 7e6


def test_counted_bytes_are_of_all_iterations():
    found = tracked(iterations=0, iteration=3, progress='[100, 0, 7]')
    assert [found.counted_bytes(flow) for flow in range(3)] == [
        2 * 4e6 + 100, 2 * 2e6, 2 * 1e6 + 7]
    found.rest()
    assert found.counted_bytes(0) == 3 * 4e6
    assert tracked(iteration=0, progress='[9]').counted_bytes(0) == 9


def test_counted_bytes_say_when_it_moved():
    found = tracked()
    found.is_dirty = False
    send(found, 'h0', 6e5, 10.0, 11.0)
    assert found.moved_s == 11.0 and found.is_dirty
    assert found.progress.span.first_s == (10.0, 11.0)
    # A pause of three seconds is none that makes them noise.
    send(found, 'h0', 6e5, 13.9, 14.0)
    assert found.progress.span.first_s == (10.0, 11.0)
    noise = tracked()
    send(noise, 'h0', 999, 10.0, 11.0)
    send(noise, 'h0', 6e5, 13.8, 13.9)
    assert noise.progress.span.first_s == (10.0, 11.0)
    noise = tracked()
    send(noise, 'h0', 999, 10.0, 11.0)
    send(noise, 'h0', 6e5, 13.8, 14.0)
    assert noise.progress.span.first_s == (13.8, 14.0)
    begun = tracked()
    send(begun, 'h0', 1000, 10.0, 11.0)
    send(begun, 'h0', 6e5, 13.8, 14.0)
    assert begun.progress.span.first_s == (10.0, 11.0)


@pytest.mark.parametrize(('now_s', 'rested_s'), [(12.9, 1.9), (13.0, 0.0)])
def test_after_a_pause_of_all_nobody_was_silent(now_s, rested_s):
    found = tracked()
    send(found, 'h0', 6e5, 10.0, 11.0)
    send(found, 'h1', 6e5, now_s - 0.1, now_s)
    assert found.progress.rested_s(now_s).tolist() == pytest.approx(
        [rested_s, rested_s, 0.0])


@pytest.mark.parametrize(('claimed_s', 'most_s', 'compute_s', 'overstates'), [
    (3.0, math.inf, 3.0, False), (3.0, 2.4, 2.4, False),
    (3.0, 2.3, 2.3, True), (3.0, 0.0, 1e-6, True), (0.5, 3.0, 0.5, False)])
def test_computing_counts_as_far_as_it_is_possible(claimed_s, most_s,
                                                   compute_s, overstates):
    found = job(compute_s=claimed_s)
    found.most_compute_s = most_s
    assert found.compute_s == compute_s
    assert found.overstates is overstates


def test_who_does_not_compute_in_turn_overstates_nothing():
    for found in (tracked(), tracked(compute_s=9.0), job(compute_s=None)):
        found.most_compute_s = 1.0
        assert found.compute_s == 0.0 and not found.overstates
    assert job(iterations=2).compute_s == 3.0


def test_a_period_is_measured_of_jobs_alone():
    def is_full(found):
        return any([found.measures(7e6, (float(now_s), now_s + 1.0))
                    for now_s in range(30)])

    assert is_full(job())
    assert not is_full(tracked(iterations=0))
    assert not is_full(job(is_estimated=True))
    assert not is_full(job(hosts=('h0', 'h0', 'h0')))


def test_sending_takes_what_the_slowest_link_takes():
    found = tracked()

    def send_s(**changed):
        rates = {'h0': (8e6, 1.0), 'h1': (8e6, 16e6),
                 'h2': (1.0, 24e6)} | changed
        ports = live_model.Ports(
            tuple(rates), *map(np.array, zip(*rates.values())))
        return found.send_s(ports, {
            host: number for number, host in enumerate(rates)})

    assert send_s() == 6.0  # out of h0
    assert send_s(h1=(1e6, 16e6)) == 8.0
    assert send_s(h1=(8e6, 4e6)) == 8.0
    assert send_s(h2=(1.0, 2e6)) == 12.0
    assert send_s(h2=(1.0, 0.5)) == 48e6
    # Of links of which nothing is known nothing follows.
    unknown = 0.0, 0.0
    assert send_s(h0=unknown) == 2.0
    assert send_s(h0=unknown, h1=unknown, h2=unknown) == 0.0


def test_the_remaining_fraction():
    found = tracked()
    assert found.remaining_fraction() == 1.0
    send(found, 'h0', 3.5e6, 1.0, 2.0)
    assert found.remaining_fraction() == pytest.approx(0.5)
    send(found, 'h0', 2.5e6, 1.0, 2.0)
    send(found, 'h1', 1e6, 1.0, 2.0)
    assert found.remaining_fraction() == 5e-3
    assert tracked(tm='[]').remaining_fraction() == 1.0
    assert tracked(tm='[[0,1,0.5]]', progress='[0.125]'
                   ).remaining_fraction() == 0.75


def test_what_is_left_between_hosts():
    found = tracked(('h0', 'h0', 'h1'))
    assert found.crossing_bytes == 3e6
    found.upcoming = byte_counters.CoflowProgress([9.0, 5.0, 3.0])
    found.touch()
    assert found.crossing_bytes == 8.0
    assert tracked(('h0', None, 'h1')).crossing_bytes == 2e6


@pytest.mark.parametrize(('name', 'at_s'), [
    ('moved_s', 7.0), ('arrival_s', 0.5), ('watched_since_s', 9.0)])
def test_a_byte_is_waited_for_since_the_last_event(name, at_s):
    found = tracked(arrival=None)
    assert found.idle_since_s == 0.0
    setattr(found, name, at_s)
    assert found.idle_since_s == at_s
    found.arrival_s = 8.0
    assert found.idle_since_s == max(8.0, at_s)


def test_what_none_of_its_flows_can_have_sent_is_beyond_its_hint():
    found = tracked()
    found.credit('h0', None, 6e6 + 0.5)
    assert found.progress.sent_bytes.tolist() == [4e6, 2e6, 0]
    assert found.progress.excess_bytes == 0.5
    found.credit('h0', 'h1', 0.25)
    assert found.progress.excess_bytes == 0.75


def test_late_bytes_of_an_unknown_size_are_of_the_flows_that_left():
    found = tracked(is_estimated=True)
    found.place(members('h1', 'h1', 'h2'))
    found.credit('h0', 'h1', 5.0)
    assert found.progress.sent_bytes.tolist() == [5, 0, 0]
    # What the host sends now is of those that are there.
    found.credit('h1', 'h2', 8.0, np.array([0.25, 0.75]))
    assert found.progress.sent_bytes.tolist() == [5, 2, 6]
    found.credit('h9', None, 3.0)
    assert found.progress.sent_bytes.tolist() == [5, 2, 6]
    assert found.progress.excess_bytes == 3.0


def test_routes_are_remembered_for_late_reports_up_to_a_bound():
    found = tracked(('h0', 'h0', 'h0'))
    for number in range(20):
        found.place(members(f'a{number}', 'h1', 'h2'))
    # Of where no flow left its host no report can come late.
    assert [route.pairs[0] for route in found.former] == [
        (f'a{number}', 'h1') for number in range(18, 2, -1)]


def test_it_begins_with_its_first_vm():
    found = tracked(state=STATE.PLANNED, iteration=0)
    found.place(members(*HOSTS, running=False))
    assert not found.begins(1.0, RULES)
    found.place(members(*HOSTS, running=False) | {
        1: route.Member('vm1', 'h1', True)})
    assert found.begins(1.0, RULES)
    found.is_dirty = False
    found.begin(4.0)
    assert (found.state, found.iteration, found.arrival_s, found.ended_s,
            found.is_dirty) == (STATE.ACTIVE, 1, 4.0, None, True)
    assert not found.begins(5.0, RULES)


def resting():
    """An iteration that ended at 10 s."""
    found = tracked(iterations=0)
    send(found, 'h0', 6e6, 1.0, 2.0)
    found.end(10.0)
    found.rest()
    return found


def test_the_next_iteration_counts_anew():
    found = resting()
    assert not found.begins(20.0, RULES)
    before = found.progress
    send(found, 'h0', 1000, 19.0, 20.0)
    assert before.all_bytes == 6e6 and found.upcoming.all_bytes == 1000
    assert found.begins(20.0, RULES)
    assert shown(found).is_resting
    found.begin(20.0)
    assert not shown(found).is_resting
    assert found.progress.all_bytes == 1000 and found.upcoming is None
    assert (found.iteration, found.ended_s) == (2, None)
    assert found.progress.sizes_bytes.tolist() == [4e6, 2e6, 1e6]


def test_a_few_bytes_and_a_pause_are_no_iteration():
    found = resting()
    send(found, 'h0', 999, 19.0, 20.0)
    assert not found.begins(22.9, RULES)
    assert found.upcoming.all_bytes == 999
    assert not found.begins(23.0, RULES)
    assert found.upcoming.all_bytes == 0


@pytest.mark.parametrize('size_bytes, came_s, begins', [
    (1000, 19.0, True), (999, 19.0, False),
    # Of the end, though they would be a beginning by now.
    (6e5, 11.0, False), (8e5, 11.0, True)])
def test_who_looks_late_sees_the_same(size_bytes, came_s, begins):
    found = resting()
    send(found, 'h0', size_bytes, came_s - 1, came_s)
    assert found.begins(60.0, RULES) == begins
    assert found.upcoming.all_bytes == size_bytes * begins


@pytest.mark.parametrize('is_estimated', [False, True])
def test_who_begins_now_knows_the_beginning_of_the_next_iteration(
        is_estimated):
    found = tracked(iterations=0, is_estimated=is_estimated)
    send(found, 'h0', 6e6, 1.0, 2.0)
    send(found, 'h1', 4e5, 2.0, 3.0)
    found.end(10.0)
    found.rest()
    send(found, 'h0', 600, 19.0, 20.0)
    row = summary.columns(found)
    assert row['sent_bytes'] == found.progress.sent_bytes.sum()
    other = tracked(iterations=0, is_estimated=is_estimated,
                    **{name: row[name] for name in ('state', 'progress')})
    for mine, theirs in ((found.progress, other.progress),
                         (found.upcoming, other.upcoming)):
        assert theirs.all_bytes == mine.all_bytes > 0
        assert theirs.sent_bytes.tolist() == mine.sent_bytes.round().tolist()
    # It waits as long for the rest as who began, and tells that it gave up.
    assert not other.begins(50.0, RULES) and other.upcoming.all_bytes == 600
    assert not other.begins(50.0 + RULES.pause_s - 0.1, RULES)
    assert other.upcoming.all_bytes == 600 and not other.is_dirty
    assert not other.begins(50.0 + RULES.pause_s, RULES)
    assert other.upcoming.all_bytes == 0 and other.is_dirty


def test_an_estimated_coflow_rests_with_what_it_is():
    found = tracked(iterations=0, is_estimated=True)
    found.rest()
    assert isinstance(found.upcoming, byte_counters.Estimated)
    assert len(found.upcoming.sent_bytes) == 3


def test_the_end_of_what_was_not_sent_is_not_measured():
    def end(found, now_s=10.0):
        send(found, 'h0', 6e6, 1.0, 2.0)
        found.is_dirty, before = False, live(found)
        found.end(now_s)
        assert live(found) is not before
        assert (found.state, found.ended_s, found.is_dirty) == (
            STATE.DONE, now_s, True)
        return found.progress.span is not None

    assert end(tracked())
    assert end(tracked(expires_at=10.1))
    assert not end(tracked(expires_at=10.0))
    assert not end(tracked(('h0', 'h1', None)))
    expired = tracked(iteration=0, expires_at=9.0)
    expired.end(10.0)
    assert expired.iteration == 1
    once = tracked(iteration=0)
    once.end(10.0)
    assert once.iteration == 0
    again = tracked(iteration=5, expires_at=9.0)
    again.end(10.0)
    assert again.iteration == 5


def test_it_expires_at_its_time():
    assert not tracked().has_expired(1e12)
    assert not tracked(expires_at=10.0).has_expired(9.9)
    assert tracked(expires_at=10.0).has_expired(10.0)


def test_it_ends_when_most_was_sent_and_nothing_moves():
    found = tracked()
    assert not coflow_ends.find_end(found, 1.0, RULES)
    send(found, 'h0', 6e6, 1.0, 2.0)
    send(found, 'h1', 3.1e5, 1.0, 2.0)
    assert not coflow_ends.find_end(found, 3.9, RULES)
    assert coflow_ends.find_end(found, 4.0, RULES)
    found.sending.take('h1', reports.CoflowCounters('c', 0, backlog_bytes=1))
    assert not coflow_ends.find_end(found, 4.0, RULES)
    found.sending.take('h1', None)
    found.state = STATE.DONE
    assert not coflow_ends.find_end(found, 4.0, RULES)
    less = tracked()
    send(less, 'h0', 6e6, 1.0, 2.0)
    assert not coflow_ends.find_end(less, 3000.0, RULES)
    assert found.is_all_sent(endings.Rules(negligible_fraction=0.1))
    assert not found.is_all_sent(endings.Rules(negligible_fraction=0.098))
    assert not tracked(is_estimated=True, tm='[]').is_all_sent(RULES)


def test_an_overrun_is_waited_for_unless_it_may_be_a_siblings():
    found = tracked()
    send(found, 'h0', 12e6, 1.0, 2.0)
    send(found, 'h1', 1e6, 1.0, 2.0)
    assert not coflow_ends.find_end(found, 3.9, RULES)
    assert 'more than the hint' in coflow_ends.find_end(found, 4.0, RULES)
    assert coflow_ends.find_end(found, 3.0, RULES, has_sibling=True) == (
        'all bytes sent')
    # Where an iteration follows, the overrun is a part of that one.
    more = tracked(iterations=2)
    send(more, 'h0', 12e6, 1.0, 2.0)
    send(more, 'h1', 1e6, 1.0, 2.0)
    assert coflow_ends.find_end(more, 2.0, RULES) == 'all bytes sent'


def test_a_rest_that_no_counter_shows_keeps_its_class():
    """Of the last iteration; an earlier one ends by its bytes alone."""
    def last(found):
        send(found, 'h0', 6e6, 1.0, 2.0)
        send(found, 'h1', 1e6, 1.0, 2.0)
        return found

    found = last(tracked())
    assert not coflow_ends.find_end(found, 2.0, RULES)
    coflow_ends.rest_until(found, 2.0, RULES)
    assert found.check_s == 3.0
    assert not coflow_ends.find_end(found, 2.9, RULES)
    assert coflow_ends.find_end(found, 3.0, RULES) == 'all bytes sent'
    # What never falls silent ends, too.
    found.moved_s = 4.5
    assert not coflow_ends.find_end(found, 4.9, RULES)
    coflow_ends.rest_until(found, 4.9, RULES)
    assert found.check_s == 5.0
    assert coflow_ends.find_end(found, 5.0, RULES) == 'all bytes sent'
    found.begin(6.0)
    assert found.all_counted_s is None
    assert coflow_ends.find_end(last(tracked(iterations=2)), 2.0, RULES)


def test_it_does_not_end_before_all_its_vms_ran():
    found = tracked(('h0', 'h1', None))
    send(found, 'h0', 6e6, 1.0, 2.0)
    assert not coflow_ends.find_end(found, 3000.0, RULES)
    found.place(members(*HOSTS))
    assert not coflow_ends.find_end(found, 3000.0, RULES)
    # Row 2 is deleted, and its flows with it.
    found.place(members('h0', 'h1'))
    assert coflow_ends.find_end(found, 3000.0, RULES)


def test_what_a_shelved_vm_has_left_is_waited_for():
    found = tracked()
    assert not coflow_ends.find_end(found, 1.0, RULES)
    send(found, 'h0', 6e6, 1.0, 2.0, 'h1')
    for away in (route.Member('vm2', None, True),
                 route.Member('vm2', 'h2', False)):
        found.place(members('h0', 'h1') | {2: away})
        assert not coflow_ends.find_end(found, 3000.0, RULES)
    found.place(members('h0', 'h1') | {2: route.Member(None, 'h2', False)})
    assert coflow_ends.find_end(found, 3000.0, RULES)


def test_an_estimated_coflow_ends_by_silence_alone():
    found = tracked(is_estimated=True)
    assert not coflow_ends.find_end(found, 3000.0, RULES)
    send(found, 'h0', 5.0, 1.0, 2.0)
    assert not coflow_ends.find_end(found, 3.9, RULES)
    assert coflow_ends.find_end(found, 4.0, RULES)
    quick = endings.Rules(quiet_s=0.5)
    assert not coflow_ends.find_end(found, 3.9, quick)
    assert coflow_ends.find_end(found, 4.0, quick)


def test_flows_inside_of_a_host_end_with_the_others():
    found = tracked(('h0', 'h0', 'h1'))
    send(found, 'h0', 3e6, 1.0, 2.0)
    assert coflow_ends.find_end(found, 3.0, RULES)
    assert found.progress.sent_bytes.tolist() == [4e6, 2e6, 1e6]


@pytest.mark.parametrize(('values', 'now_s', 'check_s'), [
    ({}, 10.0, 3601.0), ({'expires_s': 30.0}, 10.0, 30.0),
    ({'moved_s': 10.0, 'expires_s': 30.0}, 10.0, 12.0),
    ({'moved_s': 10.0, 'expires_s': 30.0}, 12.1, 13.0),
    ({'moved_s': 10.0, 'expires_s': 30.0}, 13.1, 30.0),
    ({'ended_s': 10.0, 'moved_s': 10.0}, 13.1, 16.0),
    ({'ended_s': 10.0}, 17.0, 3601.0)])
def test_it_is_looked_at_again_when_silence_may_change_it(values, now_s,
                                                          check_s):
    found = tracked()
    for name, value in values.items():
        setattr(found, name, value)
    coflow_ends.rest_until(found, now_s, RULES)
    assert found.check_s == check_s
    found.touch()
    assert found.check_s == -math.inf


def test_an_estimated_coflow_is_looked_at_after_a_flow_rests():
    found = tracked(is_estimated=True)
    found.moved_s = 10.0
    coflow_ends.rest_until(found, 11.0, endings.Rules(quiet_s=0.5))
    assert found.check_s == 12.0
    # A rounding error lets no moment pass by.
    coflow_ends.rest_until(found, 12.0 + 5e-7, endings.Rules(quiet_s=0.5))
    assert found.check_s == 12.0


def test_a_status_tells_how_far_it_is():
    found = job(arrival=1.0, cct_s=2.0, iteration=3)
    send(found, 'h0', 3e6, 1.0, 2.0)
    found.period.least_s = 9.0
    assert summary.Status.of(found) == summary.Status(
        'c', 'c', STATE.ACTIVE, 3, 3e6, 1.0, None, 2.0,
        byte_counters.Span((1.0, 2.0), (1.0, 2.0)), 9.0, 3.0)
    other = summary.Status.of(tracked())
    assert (other.span, other.measured_period_s, other.counted_compute_s) == (
        None, None, None)


def test_the_database_learns_what_was_counted():
    found = tracked(arrival=1.0, iteration=2)
    send(found, 'h0', 3e6, 1.0, 2.0)
    assert summary.columns(found) == {
        'id': 'c', 'state': STATE.ACTIVE, 'iteration': 2,
        'progress': '[2000000.0,1000000.0,0.0,0.0]', 'sent_bytes': 3e6,
        'size_bytes': 7e6, 'why': '', 'arrival': 1.0, 'ended_at': None,
        'first_byte_at': 1.5, 'last_byte_at': 1.5, 'measured_cct_s': 0.5,
        'measured_cct_error_s': 0.5}
    assert summary.columns(tracked())['measured_cct_s'] is None
    estimated = tracked(is_estimated=True)
    assert summary.columns(estimated)['size_bytes'] == float(
        estimated.progress.sizes_bytes.sum())
    # One statement writes them all.
    assert summary.columns(estimated).keys() == summary.columns(found).keys()


@pytest.mark.parametrize('is_estimated', [False, True])
def test_who_begins_now_knows_what_was_sent_beyond_the_hint(is_estimated):
    found = tracked(is_estimated=is_estimated)
    send(found, 'h0', 7e6, 1.0, 2.0)
    send(found, 'h2', 6e5, 2.0, 3.0)  # whose VM sends nothing by the hint
    other = tracked(is_estimated=is_estimated,
                    progress=summary.columns(found)['progress'])
    assert other.progress.excess_bytes == found.progress.excess_bytes == (
        6e5 if is_estimated else 1.6e6)
    assert (other.progress.sent_bytes == found.progress.sent_bytes).all()
    if not is_estimated:
        # Nothing waits, but more may come.
        assert left(other) == left(found) and any(left(found))


def test_who_overstates_is_told():
    found = job(compute_s=5.0)
    found.most_compute_s, found.period.least_s = 2.0, 3.0
    assert summary.overstating(found) == summary.Finding(
        'compute_overstated', 'c hints compute 5 s, but an iteration takes '
        '3 s in all: it is served as if it computed 2 s', ('', 'c'),
        'c', 'p', 'g')


@pytest.mark.parametrize('part', [0, 1, 2, 3, 4])
def test_there_is_something_to_save(part):
    nothing = ([], [], {}, (), ())
    assert summary.Unsaved(*nothing).is_empty()
    values = list(nothing)
    values[part] = {'p': 1.0} if part == 2 else [1]
    # What is over is over with its coflow's row.
    assert summary.Unsaved(*values).is_empty() is (part == 3)


def test_caps_of_the_flavor_count_until_the_host_reports_the_port():
    found = tracked()
    assert shown(found).live.capped is None
    capped = members(*HOSTS) | {0: route.Member(
        'vm0', 'h0', True, (5e6, math.inf))}
    found.place(capped)
    one = shown(found).live
    assert one.capped.rates_bps == {('h0', 'egress', 'vm0'): 5e6}
    assert one.capped.busy_s(one.flows) == {
        ('h0', 'egress', 'vm0'): pytest.approx(6e6 * 8 / 5e6)}
    assert shown(found).live is one
    for host, is_reported in (('h0', True), ('h1', False)):
        found.readdress()
        one = shown(found, {
            'vm0': (host, (), (math.inf, 1e6), ()),
            'vm2': ('h2', (), (math.inf, 2e6), ())}).live
        assert one.capped.rates_bps == {
            ('h2', 'ingress', 'vm2'): 2e6} | (
                {} if is_reported else {('h0', 'egress', 'vm0'): 5e6})
    # Flows by rows: [0, 1], [0, 2], [1, 2].
    assert one.capped.passed.tolist() == [[0, -1], [0, 1], [-1, 1]]


def test_a_cap_takes_time_for_bytes_inside_the_host_too():
    found = tracked()
    first, second = found.model.matrix.size_bytes[:2]
    for cap_bps, host, least_s in (
            (4e6, 'h0', 8 * (first + second) / 4e6),
            # Between hosts the counters tell what is left.
            (4e6, 'h1', 0.0), (math.inf, 'h0', 0.0)):
        found.place({0: route.Member('vm0', 'h0', True, (cap_bps, math.inf)),
                     1: route.Member('vm1', host, True),
                     2: route.Member('vm2', 'h2', True, (1e6, math.inf))})
        one = shown(found).live
        assert one.least_s == pytest.approx(least_s)
        assert one.began_s is None
    found.place({0: route.Member('vm0', 'h0', True),
                 1: route.Member('vm1', 'h0', True, (math.inf, 2e6)),
                 2: route.Member('vm2', 'h2', True)})
    send(found, 'h0', 1e6, 10.0, 12.0)
    one = shown(found).live
    assert (one.least_s, one.began_s) == (pytest.approx(8 * first / 2e6),
                                          11.0)


def test_vms_of_a_pair_pass_caps_of_their_own():
    """Two VMs on one host send to one other; what was sent counts."""
    found = tracked()
    found.place({0: route.Member('vm0', 'h0', True, (4e6, math.inf)),
                 1: route.Member('vm1', 'h0', True, (2e6, math.inf)),
                 2: route.Member('vm2', 'h2', True, (math.inf, 1e6))})
    found.counting.credit(np.array([1]), 1e6)
    found.touch()
    one = shown(found).live
    assert one.flows.pairs == (('h0', 'h2'),)
    assert one.capped.pair_of.tolist() == [0, 0]
    assert one.capped.share.tolist() == [0.5, 0.5]
    assert one.capped.busy_s(one.flows) == {
        ('h0', 'egress', 'vm0'): pytest.approx(1e6 * 8 / 4e6),
        ('h0', 'egress', 'vm1'): pytest.approx(1e6 * 8 / 2e6),
        ('h2', 'ingress', 'vm2'): pytest.approx(2e6 * 8 / 1e6)}
