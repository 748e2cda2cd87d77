# SPDX-License-Identifier: Apache-2.0

"""Living groups: who is where, what waits, and whose coflows are whose."""

import pytest

from tests.unit.state import test_live_state as known
from virtco.model import states
from virtco.state import living_groups
from virtco.state import pair_counters
from virtco.wire import deltas
from virtco.wire import reports

STATE = states.MemberState


def waiting_of(groups):
    """VMs whose hosts Nova has not confirmed, with the reserved ones."""
    return {vm: member.host for vm, (_, _, member) in groups.vms.items()
            if not member.running}


def made(*members, coflows=()):
    found = living_groups.Groups()
    found.load(members, coflows, None, False)
    return found


@pytest.fixture
def two():
    """Group g with a planned member, group k all of which run."""
    return made(
        known.member('g', 0, 'h0'), known.member('g', 1, 'h1', STATE.PLANNED),
        known.member('g', 2, None, STATE.VACANT),
        known.member('k', 0, 'h1'), known.member('k', 5, 'h0'),
        coflows=[known.stored(), known.stored(
            'd', 'k', flows='[[0,5,7]]', n_vms=6, state='done',
            iterations=0)])


def test_where_members_are(two):
    assert two.hosts() == two.hosts(running=True) == {'h0', 'h1'}
    planned = made(known.member('g', 1, 'h1', STATE.PLANNED))
    assert planned.hosts() == {'h1'} and planned.hosts(running=True) == set()
    assert two.hosts_of('g') == ['h0', 'h1'] and two.hosts_of('x') == []
    assert [two.count_members(host) for host in ('h0', 'h1', 'h2')] == [
        2, 2, 0]
    assert two.awaited_hosts() == {'h0', 'h1'}
    assert living_groups.Groups().awaited_hosts() == set()


def test_who_waits_and_whether_a_host_is_planned(two):
    assert waiting_of(two) == {'g-1': 'h1', 'g-2': None}
    nameless = known.member('g', 3, 'h1', STATE.PLANNED)
    nameless.instance_uuid = None
    assert waiting_of(made(nameless)) == {}


def test_groups_that_are_read_alone_leave_the_others(two):
    vms, waiting = dict(two.vms), dict(waiting_of(two))
    # One VM stays, one runs now, one is new, and one is gone.
    two.load([known.member('g', 0, 'h0'), known.member('g', 1, 'h1'),
              known.member('g', 3, 'h2', STATE.PLANNED)], [], {'g'}, False)
    assert waiting_of(two) == {'g-3': 'h2'}
    assert two.vms.keys() == vms.keys() - {'g-2'} | {'g-3'}
    assert two.vms['k-0'] == vms['k-0']
    assert two.vms_of({'g'}) == {'g-0', 'g-1', 'g-3'}
    assert two.vms_of({'x'}) == set() and two.vms_of(None) == set(two.vms)
    two.load([], [], {'g'}, False)
    assert two.vms.keys() == {'k-0', 'k-5'} and waiting_of(two) == {}
    assert waiting == {'g-1': 'h1', 'g-2': None}


def test_a_vm_that_moved_to_another_group_stays_there(two):
    moved = known.member('k', 1, 'h3', STATE.PLANNED)
    moved.instance_uuid = 'g-1'
    two.load([moved], [], {'k'}, False)
    for _ in range(2):
        two.load([known.member('g', 0, 'h0')], [], {'g'}, False)
        assert two.vms['g-1'][:2] == ('k', 1)
        assert waiting_of(two) == {'g-1': 'h3'}
    two.load([], [], {'k'}, False)
    assert two.vms.keys() == {'g-0'} and waiting_of(two) == {}


def test_rows_are_found_by_vm(two):
    assert two.vms['k-5'][:2] == ('k', 5)
    assert two.rows_of('k') == {'k-0': 0, 'k-5': 5}


def test_siblings_are_other_coflows_of_the_group():
    found = made(known.member('g', 0, 'h0'), known.member('g', 1, 'h1'),
                 known.member('k', 0, 'h0'), known.member('k', 1, 'h1'),
                 coflows=[known.stored(), known.stored('e', position=1),
                          known.stored('d', 'k')])
    assert {name: found.has_sibling(tracked) for name, tracked
            in found.coflows.items()} == {'c': True, 'e': True, 'd': False}
    # One that is not in flight is none.
    first = found.coflows['c']
    del found.coflows['e']
    assert not found.has_sibling(first)


def test_what_other_groups_load(two):
    assert [load.coflow_id for load in two.loads(None)] == ['c', 'd']
    assert [load.coflow_id for load in two.loads('g')] == ['d']
    # Inside of a host nothing is loaded.
    assert made(known.member('k', 0, 'h1'), known.member('k', 5, 'h1'),
                coflows=[known.stored('d', 'k', flows='[[0,5,7]]', n_vms=6)]
                ).loads(None) == ()


def test_those_that_rest_come_last(two):
    assert [one.coflow_id for one in made(
        known.member('g', 0, 'h0'), coflows=[
            known.stored('a', state='done', iterations=0),
            known.stored('b'), known.stored('x', state='planned'),
            known.stored('y')]).in_turn()] == ['b', 'y', 'a']


def test_the_turn_is_the_same_in_whatever_order_the_database_lists():
    rows = [known.stored('b'), known.stored('late', arrival=2.0),
            known.stored('a'), known.stored('none', arrival=None)]
    for coflows in (rows, rows[::-1]):
        assert [one.coflow_id for one in made(
            known.member('g', 0, 'h0'), coflows=coflows).in_turn()] == [
                'none', 'a', 'b', 'late']


def test_new_addresses_are_of_a_group(two):
    tables = {name: known.seen(one).table
              for name, one in two.coflows.items()}
    two.readdress(['k-0', 'nobody'])
    assert known.seen(two.coflows['c']).table is tables['c']
    assert known.seen(two.coflows['d']).table is not tables['d']


def test_class_and_weight_are_the_operators(two):
    shown = known.seen(two.coflows['c']).live
    two.load([], [known.stored()], {'g'}, False)
    # It has no members any more.
    assert known.seen(two.coflows['c']).live is not shown
    shown = known.seen(two.coflows['c']).live
    two.load([], [known.stored(cct_s=3.0)], {'g'}, False)
    assert known.seen(two.coflows['c']).live is shown
    assert two.coflows['c'].planned_cct_s == 3.0
    for values in ({'weight': 2.0}, {'priority_class': 4}):
        before = known.seen(two.coflows['c']).live
        two.load([], [known.stored(**values)], {'g'}, False)
        after = known.seen(two.coflows['c']).live
        assert after is not before
        assert (after.weight, after.priority_class) == (
            values.get('weight', 1.0), values.get('priority_class', 0))


def test_what_is_read_anew_or_gone(two):
    tracked = two.coflows['c']
    two.load([known.member('g', 0, 'h0')], [known.stored()], {'g'}, False)
    assert two.coflows['c'] is tracked
    two.load([known.member('g', 0, 'h0')], [known.stored()], {'g'}, True)
    assert two.coflows['c'] is not tracked
    two.load([], [], {'g'}, False)
    assert two.coflows.keys() == {'d'} and 'g-0' not in two.vms
    two.load([], [], None, False)
    assert two.coflows == two.vms == {}


def test_coflows_are_there_while_they_are_read_again(two):
    """Reports are read beside it, and counters stored."""
    seen = []

    def rows():
        for name, group_id in ('c', 'g'), ('d', 'k'):
            yield known.stored(name, group_id)
            seen.append(set(two.coflows))

    two.load([], rows(), None, False)
    assert seen == [{'c', 'd'}] * 2


def test_what_ended_is_not_read_again(two):
    tracked = two.coflows['c']
    two.end(tracked)
    assert two.find('c') is tracked and 'c' not in two.coflows
    two.load([known.member('g', 0, 'h0')], [known.stored()], {'g'}, False)
    assert 'c' not in two.coflows
    assert two.find('d') is two.coflows['d'] and two.find('x') is None


def test_what_is_dirty_is_taken_once(two):
    assert two.take_dirty() == []
    for tracked in list(two.coflows.values()):
        tracked.is_dirty = True
    ended = two.coflows['c']
    two.end(ended)
    assert two.take_dirty() == [two.coflows['d'], ended]
    # What is over stays until the database has it.
    assert two.take_dirty() == [ended]


ADDRESSES = {f'g-{i}': (f'h{i}', (f'10.0.0.{i}',)) for i in range(3)}


def tracked(**values):
    return made(*(known.member('g', i, f'h{i}') for i in range(3)),
                coflows=[known.stored(**values)]).coflows['c']


def key(src, dst, port=0):
    return f'g-{src}', f'10.0.0.{src}', f'10.0.0.{dst}', port


def test_owners_of_pairs():
    first, second = tracked(), tracked(flows='[[0,1,7],[2,1,9]]')
    owners = pair_counters.find_owners([first, second], ADDRESSES | {
        'g-2': ('h2', ('10.0.0.2', '::2'))})
    assert {pair: (coflow is first, flow)
            for pair, (coflow, flow) in owners.items()} == {
        key(0, 1): (True, 0), key(0, 2): (True, 1), key(1, 2): (True, 2),
        ('g-0', '10.0.0.0', '::2', 0): (True, 1),
        ('g-1', '10.0.0.1', '::2', 0): (True, 2),
        key(2, 1): (False, 1), ('g-2', '::2', '10.0.0.1', 0): (False, 1)}
    assert key(0, 1, 80) in pair_counters.find_owners(
        [tracked(dst_port=80)], ADDRESSES)
    assert pair_counters.find_owners([first], {}) == {}


def pairs(*rows, host=0):
    """:param rows: source, destination, port or None, bytes."""
    return known.made.report(
        ports=[{'vm': f'g-{host}', 'dev': 'tap'}], pairs=[
            {'dev': 'tap', 'src_ip': f'10.0.0.{src}',
             'dst_ip': f'10.0.0.{dst}', 'dst_port': port, 'sent_bytes': size}
            for src, dst, port, size in rows])


def test_pairs_are_counted_in_payload():
    coflow = tracked()
    owners = pair_counters.find_owners([coflow], ADDRESSES)
    counters = pair_counters.PairCounters()

    def credit(*rows):
        return [(flow, size) for (_, flow), size in counters.credit(
            'h0', pairs(*rows), owners, 1.25)]

    # At first all that is not counted yet is new.
    assert credit((0, 1, None, 50), (0, 2, None, 0)) == [(0, 40.0)]
    assert credit((0, 1, None, 60), (0, 2, None, 5)) == [(0, 8.0), (1, 4.0)]
    assert credit((0, 1, None, 60), (0, 2, None, 5)) == []
    # One that went back began anew; one of a port is nobody's.
    assert credit((0, 1, None, 5), (0, 1, 80, 99)) == [(0, 4.0)]
    assert coflow.progress.sent_bytes.tolist() == [52, 4, 0]
    # A pair that went and came tells what it had.
    assert credit((0, 2, None, 5)) == []
    assert credit((0, 1, None, 70), (0, 2, None, 5)) == [(0, 4.0)]
    # A part of a byte counts, too.
    assert credit((0, 1, None, 71)) == [(0, pytest.approx(0.8))]


def test_bytes_between_hosts_are_divided_by_the_pairs():
    coflow = tracked()

    def shares(seen, flows=(0, 1)):
        return pair_counters.shares(seen, coflow, list(flows), ADDRESSES
                                    ).tolist()

    assert shares({key(0, 1): 30.0, key(0, 2): 10.0, key(2, 0): 9.0}) == [
        0.75, 0.25]
    assert shares({key(0, 1): 0.125, key(0, 2): 0.375}) == [0.25, 0.75]
    assert shares({key(0, 1, 80): 30.0}) == pytest.approx([2 / 3, 1 / 3])
    coflow.progress.sent_bytes[:] = coflow.progress.sizes_bytes
    assert shares({}) == [0.5, 0.5]
    assert shares({}, ()) == []
    with_port = tracked(dst_port=80)
    assert pair_counters.shares(
        {key(0, 1, 80): 1.0, key(0, 2, 80): 4.0, key(0, 1): 99.0},
        with_port, [0, 1], ADDRESSES).tolist() == [0.2, 0.8]


def test_totals_are_by_vm():
    assert pair_counters.totals(pairs((0, 1, None, 5), (0, 1, 80, 7))) == {
        key(0, 1): 5, key(0, 1, 80): 7}


def peers(*rows, epoch='e'):
    """:param rows: device, row of the destination, bytes, packets."""
    return known.made.report(
        epoch=epoch, ports=[{'vm': f'vm{i}', 'dev': f'tap{i}'}
                            for i in range(2)], peers=[
            {'dev': dev, 'dst_ip': f'10.0.0.{dst}', 'sent_bytes': size,
             'sent_packets': packets} for dev, dst, size, packets in rows])


def test_peers_are_counted_without_headers():
    found = pair_counters.PeerCounters()

    def take(*rows, epoch='e'):
        return list(found.take(peers(*rows, epoch=epoch)))

    assert take(('tap0', 1, 1520, 10)) == []
    assert take(('tap0', 1, 1520, 10)) == []
    assert take(('tap0', 1, 3040, 20), ('tap1', 0, 530, 10),
                ('tap9', 0, 999, 1)) == [
        ('vm0', '10.0.0.1', 1000.0), ('vm1', '10.0.0.0', 10.0)]
    # Of one that stays where it was nothing is new, and of one byte that.
    assert take(('tap0', 1, 3040, 20), ('tap1', 0, 531, 10)) == [
        ('vm1', '10.0.0.0', 1.0)]
    # Acknowledgements alone are no payload; what went back began anew.
    assert take(('tap0', 1, 620, 10), ('tap1', 0, 530, 20)) == [
        ('vm0', '10.0.0.1', 100.0)]
    assert take(('tap0', 1, 620, 10), epoch='f') == []
    assert take(('tap0', 1, 625, 10), epoch='f') == [
        ('vm0', '10.0.0.1', 5.0)]
    # An epoch may begin with the very counters that the last one ended with.
    assert take(('tap0', 1, 625, 10), epoch='g') == []
    assert take(('tap0', 1, 632, 10), epoch='g') == [
        ('vm0', '10.0.0.1', 7.0)]


def test_what_a_report_leaves_out():
    found = known.made.report()
    assert (found.default_sent_bytes, found.boot_ms, found.pairs,
            found.peers, found.cpu_s) == (0, None, (), (), None)
    assert reports.DestinationCounter('h', 1).backlog_bytes == 0
    counters = reports.CoflowCounters('c', 1)
    assert (counters.sent_packets, counters.drops, counters.backlog_bytes,
            counters.destinations) == (0, 0, 0, ())
    assert reports.PairCounter('1', '2', 3).sent_packets == 0
    part = reports.PartCounters()
    assert (part.sent_bytes, part.drops, part.backlog_bytes) == (0, 0, 0)
    assert reports.LimitCounter(None, 1).backlog_bytes == 0
    measured = known.made.measurement('a', 'b', 9.0)
    assert (measured.loss, measured.lower_bound) == (0.0, False)
    nothing = reports.NO_REPORT
    assert (nothing.applied_generation, nothing.uplink_sent_bytes) == (0, 0)


def test_what_an_edge_module_of_another_release_tells_beyond_is_ignored():
    body = {'epoch': 'e', 'applied_generation': 3, 'link': {
        'egress_bps': 1e9, 'ingress_bps': 1e9}, 'ports': [], 'coflows': [],
        'uplink_sent_bytes': 0}
    beyond = {'colours': [{'coflow_id': 'c', 'is_red': True}]}
    assert known.msgspec.convert(body | beyond, reports.Report) == (
        known.msgspec.convert(body, reports.Report))
    delta = known.msgspec.convert(
        {'type': 'delta', 'set': beyond | {'error': 'x'}}, deltas.Delta)
    assert deltas.patch(reports.NO_REPORT, delta).error == 'x'


@pytest.mark.parametrize(('rtt_s', 'is_taken'), [
    (0, True), (3600, True), (-1e-9, False), (3600.1, False)])
def test_round_trips_are_of_an_hour_at_most(rtt_s, is_taken):
    body = {'probe_id': 'p', 'src': 'a', 'dst': 'b', 'rate_bps': 9.0,
            'rtt_s': rtt_s}
    try:
        known.msgspec.convert(body, reports.Measurement)
    except known.msgspec.ValidationError:
        assert not is_taken
    else:
        assert is_taken


def test_a_report_has_so_many_coflows_and_pairs():
    assert (reports.MOST_COFLOWS, reports.MOST_PAIRS) == (10_000, 100_000)


def test_a_vm_that_another_group_has_by_now_stays_there():
    found = living_groups.Groups()
    found.load([known.member('f', 0, 'h1'), known.member('g', 0, 'h0')], [],
               None, False)
    moved = known.member('f', 1, 'h2', states.MemberState.RESERVED)
    moved.instance_uuid = 'g-0'
    found.load([known.member('f', 0, 'h1'), moved], [], {'f'}, False)
    for groups in ({'g'}, set()):
        found.load([], [], groups, False)
        assert {vm: at[:2] for vm, at in found.vms.items()} == {
            'f-0': ('f', 0), 'g-0': ('f', 1)}
        assert waiting_of(found) == {'g-0': 'h2'}
    assert found.vms_of({'f', 'g'}) == found.vms_of(None) == {'f-0', 'g-0'}
    found.load([], [], None, False)
    assert found.vms == waiting_of(found) == {}
