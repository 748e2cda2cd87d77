# SPDX-License-Identifier: Apache-2.0

"""Live state: what is counted belongs to whom, and when it is the end."""

import math
import types

import msgspec
import pytest

from tests.unit import made
from virtco.model import states
from virtco.scheduling import endings
from virtco.state import host_state
from virtco.state import live_state
from virtco.state import remaining_flows
from virtco.state import route as routes
from virtco.state import schedule_input
from virtco.topology import tree
from virtco.wire import reports


def member(group_id, index, host, state=states.MemberState.RUNNING):
    return types.SimpleNamespace(
        group_id=group_id, row_index=index, host=host, state=state,
        instance_uuid=f'{group_id}-{index}', egress_cap_bps=None,
        ingress_cap_bps=None, egress_limit_bps=None,
        ingress_limit_bps=None, addresses='')


def stored(coflow_id='c', group_id='g', flows='[[0,1,100],[0,2,50],[1,2,25]]',
           **values):
    return types.SimpleNamespace(**{
        'id': coflow_id, 'group_id': group_id, 'project_id': 'p',
        'name': coflow_id, 'state': states.CoflowState.ACTIVE, 'n_vms': 3,
        'tm': flows, 'progress': '[]', 'dst_port': None,
        'iterations': 1, 'iteration': 1, 'period_s': None,
        'compute_s': None, 'served_by': None, 'rank_hint': None,
        'is_estimated': False,
        'priority_class': 0,
        'weight': 1.0, 'arrival': 1.0, 'ended_at': None, 'expires_at': None,
        'deadline_at': None, 'is_promised': False,
        'cct_s': None, 'why': '',
        'first_byte_at': None, 'last_byte_at': None,
        'measured_cct_error_s': None} | values)


def seen(tracked):
    return remaining_flows.shown(tracked, (), endings.Rules(), {})


def report(sent=0, epoch='e', coflow_id='c', destinations=None,
           backlog=0, uplink=None, ports=()):
    entry = {'coflow_id': coflow_id, 'sent_bytes': sent,
             'backlog_bytes': backlog}
    if destinations is not None:
        entry['sent_bytes'] = sum(destinations.values())
        entry['destinations'] = [{'host': h, 'sent_bytes': b}
                                 for h, b in destinations.items()]
    return made.report(
        epoch=epoch, link={'egress_bps': 1e8, 'ingress_bps': 3e8},
        ports=list(ports), coflows=[entry],
        uplink_sent_bytes=entry['sent_bytes'] if uplink is None else uplink)


@pytest.fixture
def state():
    found = live_state.LiveState()
    found.load_groups([member('g', i, f'h{i}') for i in range(3)],
                      [stored()])
    return found


def sent(state):
    return state._groups.coflows['c'].progress.sent_bytes.tolist()


def test_bytes_go_to_the_flows_of_the_host(state):
    state.intake('h0', report(30), 1.0)
    assert sent(state) == pytest.approx([20, 10, 0])
    state.intake('h1', report(5), 1.0)
    assert sent(state) == pytest.approx([20, 10, 5])


def test_a_coflow_deleted_while_a_report_is_read_loses_no_others_bytes(
        state, monkeypatch):
    vms = [member('g', row, f'h{row}') for row in range(3)]
    state.load_groups(vms, [stored(), stored('d')])
    both = made.replaced(report(30), coflows=[
        {'coflow_id': name, 'sent_bytes': 30} for name in 'cd'])
    state.intake('h0', report(0), 1.0)
    counters = state._hosts['h0'].counters
    read = counters.read

    def late(*args):
        found = read(*args)
        state.drop('d')
        return found

    monkeypatch.setattr(counters, 'read', late)
    state.intake('h0', both, 2.0)
    assert sent(state) == pytest.approx([20, 10, 0])


def test_addresses_of_a_host_forgotten_while_its_report_is_read(
        state, monkeypatch):
    told = report(ports=[{'vm': 'g-0', 'ips': ['10.0.0.1']}])
    state.intake('h0', told, 1.0)
    counters = state._hosts['h0'].counters
    read = counters.read

    def late(*args):
        state.forget_hosts({'h0'})
        return read(*args)

    monkeypatch.setattr(counters, 'read', late)
    state.intake('h0', told, 2.0)
    assert state.addresses_of(['g-0']) == [('10.0.0.1',)]


def test_bytes_per_destination_go_to_its_flows(state):
    state.intake('h0', report(destinations={'h2': 30}), 1.0)
    assert sent(state) == pytest.approx([0, 30, 0])


def peers(ports, epoch='e', **bytes_of):
    """What row 0 sent to other rows beside the coflow."""
    return msgspec.structs.replace(
        report(ports=ports, epoch=epoch), peers=tuple(
            reports.PeerCounter('tap0', f'10.0.0.{row[1:]}', size + 520, 10)
            for row, size in bytes_of.items()))


def test_what_vms_send_beside_their_coflow_is_in_their_profile(state):
    vms = [state._groups._members['g'][row].instance_uuid
           for row in range(3)]
    ports = [{'vm': vm, 'dev': f'tap{row}', 'mac': '02:00:00:00:00:01',
              'ips': [f'10.0.0.{row}']} for row, vm in enumerate(vms)]
    # What was counted before the first report was told to somebody else.
    state.intake('h0', peers(ports, r1=100), 1.0)
    state.intake('h0', peers(ports, r1=100), 2.0)
    assert state.take_profiles() == {}
    # Row 7 is no VM of the group; to itself a VM sends nothing that counts.
    state.intake('h0', peers(ports, r1=400, r2=50, r7=900, r0=5), 3.0)
    assert state.take_profiles() == {'g': {(0, 1): 300.0, (0, 2): 50.0}}
    # The counter of one began anew.
    state.intake('h0', peers(ports, r1=30, r2=60), 4.0)
    assert state.take_profiles() == {'g': {(0, 1): 30.0, (0, 2): 10.0}}
    state.intake('h0', peers(ports, 'another', r1=999), 5.0)
    assert state.take_profiles() == {}


def test_only_the_host_of_a_vm_tells_what_it_sent(state):
    ports = [{'vm': f'g-{row}', 'dev': f'tap{row}',
              'mac': '02:00:00:00:00:01', 'ips': [f'10.0.0.{row}']}
             for row in range(3)]
    state.intake('h0', peers(ports[:1]), 1.0)
    for now_s, size in enumerate((0, 4000), 2):
        state.intake('h2', peers(ports, r1=size), float(now_s))
    assert state.take_profiles() == {}
    state.intake('h0', peers(ports[:1], r1=7), 4.0)
    state.intake('h1', report(ports=ports[1:2]), 5.0)
    state.intake('h0', peers(ports[:1], r1=12), 6.0)
    assert state.take_profiles() == {'g': {(0, 1): 12.0}}
    state.intake('h2', peers(ports, r1=9000), 7.0)
    assert not any(sent.sent_bytes == 5000 for sent
                   in state._progress._unhinted._sent.values())


def test_what_a_coflow_loads_follows_its_members(state):
    coflow = state._groups.coflows['c']
    assert dict(coflow.load.out_bytes) == {'h0': 150, 'h1': 25}
    # Two move together: another number of pairs of hosts.
    state.load_groups([member('g', 0, 'h0'), member('g', 1, 'h3'),
                       member('g', 2, 'h3')], [stored()])
    coflow = state._groups.coflows['c']
    assert dict(coflow.load.out_bytes) == {'h0': 150}
    assert dict(coflow.load.in_bytes) == {'h3': 150}


def test_a_report_that_comes_late_is_not_counted(state):
    first, second = (msgspec.structs.replace(
        report(sent), boot_id='b', boot_ms=at_ms)
        for sent, at_ms in ((30, 100), (60, 200)))
    state.intake('h0', second, 1.0)
    assert not state.intake('h0', first, 1.1)
    state.intake('h0', second, 1.2)
    assert sent(state) == pytest.approx([40, 20, 0])
    # After a boot times begin anew.
    state.intake('h0', msgspec.structs.replace(
        first, boot_id='c', epoch='f'), 1.3)
    assert sent(state) == pytest.approx([60, 30, 0])


def test_the_headers_are_taken_off():
    state = live_state.LiveState(
        schedule_input.Rules(wire_overhead_fraction=0.25))
    state.load_groups([member('g', i, f'h{i}') for i in range(3)],
                      [stored()])
    state.intake('h1', report(25), 1.0)
    assert sent(state) == pytest.approx([0, 0, 20])


def test_the_first_bytes_and_the_last_ask_for_a_schedule_at_once(state):
    state.intake('h1', report(0), 1.0)
    assert state.intake('h1', report(5), 1.1)
    assert not state.intake('h1', report(10), 1.2)
    state.intake('h0', report(150), 1.3)
    assert state.intake('h1', report(25), 1.4)


def test_bytes_after_a_silence_ask_for_a_schedule_at_once(state):
    # A coflow that was silent is served last until then.
    state.intake('h1', report(5), 1.0)
    assert not state.intake('h1', report(6), 1.75)
    assert not state.intake('h1', report(7), 2.5)
    assert state.intake('h1', report(8), 3.5)


def left_bytes(state):
    (coflow,) = state.snapshot(schedule_input.Options(), 1.1).coflows
    return coflow.live.flows.remaining_bytes.tolist()


def test_when_all_was_counted_only_queues_are_left(state):
    state.intake('h0', report(150), 1.0)
    # Nothing is known of the others yet, so that the flows to them wait.
    assert left_bytes(state) == [0, 0, 0]
    state.meet({'h1', 'h2'}, 1.0)
    assert left_bytes(state) == pytest.approx([0.5, 0.25, 25])
    state.intake('h0', report(160, backlog=12), 1.1)
    state.intake('h1', report(25), 1.1)
    assert advance(state, 1.1) == []
    assert left_bytes(state) == pytest.approx([8, 4, 0])
    state.intake('h0', report(160), 1.2)
    # More came than was hinted: perhaps it goes on.
    assert left_bytes(state) == pytest.approx([0.5, 0.25, 0.125])
    assert state.snapshot(schedule_input.Options(), 1.2
                          ).coflows[0].live.served is None


def test_an_overrun_is_taken_for_twice_the_hint(state):
    state.meet({'h1', 'h2'}, 1.0)
    state.intake('h0', report(200, backlog=12), 1.0)
    state.intake('h1', report(150), 1.1)
    (coflow,) = state.snapshot(schedule_input.Options(), 1.2).coflows
    # Of 4 x 175.
    assert coflow.live.flows.remaining_bytes.sum() == pytest.approx(350)
    assert coflow.live.served.remaining_bytes.sum() == pytest.approx(350)


def pair_bytes(state):
    tracked = state._groups.coflows['c']
    return dict(zip(tracked.route.pairs,
                    tracked.left_bytes(tracked.route).tolist()))


def table(state):
    return state._shown(state._groups.coflows['c']).table


def advance(state, now_s):
    return [t.state for t in state.advance(now_s)]


def test_done_when_all_is_counted_and_no_queue_is_left(state):
    state.intake('h0', report(150), 1.0)
    state.intake('h1', report(25, backlog=9), 1.0)
    assert advance(state, 1.0) == []
    assert state.intake('h1', report(25), 1.1)
    # What counters do not show may be on its way.
    assert advance(state, 1.1) == []
    assert advance(state, 2.1) == [states.CoflowState.DONE]
    assert state._groups.coflows == {}
    assert set(state._groups.ended) == {'c'}


def test_done_when_nearly_all_is_counted_and_nothing_moves(state):
    state.intake('h0', report(140), 1.0)
    state.intake('h1', report(24), 1.0)
    assert advance(state, 1.9) == []
    assert advance(state, 2.1) == [states.CoflowState.DONE]


def test_it_is_looked_at_when_silence_may_end_it(state):
    state.intake('h0', report(140), 1.0)
    state.intake('h1', report(24), 1.0)
    assert advance(state, 1.0) == []
    # No sooner, as nothing else touches it.
    assert state._groups.coflows['c'].check_s == 2.0
    assert advance(state, 2.0) == [states.CoflowState.DONE]


def test_not_done_while_much_is_left(state):
    state.intake('h0', report(80), 1.0)
    assert advance(state, 1000.0) == []


def test_planned_becomes_active_with_the_first_vm():
    state = live_state.LiveState()
    members = [member('g', i, f'h{i}', states.MemberState.RESERVED)
               for i in range(3)]
    state.load_groups(members, [stored(state=states.CoflowState.PLANNED)])
    assert advance(state, 1.0) == []
    members[0].state = states.MemberState.RUNNING
    state.load_groups(members, [stored(state=states.CoflowState.PLANNED)])
    assert advance(state, 2.0) == [states.CoflowState.ACTIVE]
    assert state._groups.coflows['c'].arrival_s == 2.0
    # What others will be planned around counts planned hosts, too.
    (load,) = state.loads('other')
    assert dict(load.out_bytes) == {'h0': 150, 'h1': 25}
    assert sum(size for *_pair, size in load.pairs) == 175
    assert state.loads('g') == ()


def test_flows_of_a_deleted_vm_end_with_it(state):
    assert advance(state, 1.0) == []
    state.load_groups([member('g', i, f'h{i}') for i in range(2)],
                      [stored()])
    state.intake('h0', report(100), 1.0)
    assert advance(state, 2.0) == [states.CoflowState.DONE]


def test_a_coflow_waits_for_vms_that_never_ran():
    state = live_state.LiveState()
    state.load_groups([member('g', i, f'h{i}') for i in range(2)],
                      [stored()])
    state.intake('h0', report(150), 1.0)
    assert advance(state, 1000.0) == []


def test_flows_inside_a_host_are_done_at_once():
    state = live_state.LiveState()
    state.load_groups([member('g', i, 'h0') for i in range(3)], [stored()])
    assert advance(state, 1.0) == [states.CoflowState.DONE]


def test_a_move_keeps_the_progress(state):
    state.intake('h0', report(30), 1.0)
    state.load_groups([member('g', 0, 'h9'), member('g', 1, 'h1'),
                       member('g', 2, 'h2')], [stored()])
    state.intake('h9', report(60), 2.0)
    assert sent(state) == pytest.approx([60, 30, 0])
    assert pair_bytes(state) == pytest.approx(
        {('h9', 'h1'): 40, ('h9', 'h2'): 20, ('h1', 'h2'): 25})


PORTS = [{'vm': f'g-{i}', 'dev': f'tap{i}', 'ips': [f'10.0.0.{i}']}
         for i in range(3)]


def pair_report(host, *counts, epoch='e'):
    """Of host h<i> with VM g-<i>; (destination row, bytes) per pair."""
    return made.replaced(
        report(ports=[PORTS[host]], epoch=epoch, uplink=1e4),
        coflows=[], pairs=[
            {'dev': f'tap{host}', 'src_ip': f'10.0.0.{host}',
             'dst_ip': f'10.0.0.{dst}', 'dst_port': None,
             'sent_bytes': sent_bytes} for dst, sent_bytes in counts])


@pytest.fixture
def fair(state):
    """Without classes, and every host has reported its port."""
    state.count_pairs(True)
    for host in range(3):
        state.intake(f'h{host}', pair_report(host), 0.5)
    return state


def test_without_classes_the_pairs_tell(fair):
    assert fair.intake('h0', pair_report(0, (1, 30), (2, 50)), 1.0)
    assert sent(fair) == pytest.approx([30, 50, 0])
    assert not fair.intake('h0', pair_report(0, (1, 90), (2, 50)), 2.0)
    assert sent(fair) == pytest.approx([90, 50, 0])
    assert advance(fair, 2.0) == []
    fair.intake('h0', pair_report(0, (1, 100), (2, 50)), 3.0)
    assert fair.intake('h1', pair_report(1, (2, 25)), 3.0)
    assert advance(fair, 3.0) == [states.CoflowState.DONE]


def test_pairs_of_others_are_nobodys(fair):
    found = pair_report(0, (1, 30))
    (pair,) = found.pairs
    for other in ({'dst_port': 99}, {'dev': 'tap9'}):
        fair.intake('h0', msgspec.structs.replace(found, pairs=(
            msgspec.structs.replace(pair, **other),)), 1.0)
    assert sent(fair) == [0, 0, 0]


def test_silence_of_a_second_is_no_end_where_pairs_are_counted(fair):
    fair.intake('h0', pair_report(0, (1, 95), (2, 48)), 1.0)
    fair.intake('h1', pair_report(1, (2, 24)), 1.0)
    assert advance(fair, 20.0) == []
    assert advance(fair, 31.1) == [states.CoflowState.DONE]


def test_what_was_counted_by_a_class_is_not_counted_again(state):
    """The order changes; the pairs were counted all along."""
    state.intake('h1', report(10, ports=[PORTS[1]]), 1.0)
    state.intake('h2', report(0, ports=[PORTS[2]]), 1.0)
    state.count_pairs(True)
    state.intake('h1', pair_report(1, (2, 10)), 2.0)
    assert sent(state) == [0, 0, 10]
    state.intake('h1', pair_report(1, (2, 14)), 3.0)
    assert sent(state) == [0, 0, 14]
    # And back: from here on the class counts again.
    state.count_pairs(False)
    state.intake('h1', pair_report(1, (2, 20)), 4.0)
    assert sent(state) == [0, 0, 14]


def test_pairs_of_a_new_life_go_on(fair):
    """The VM moves, or the counters begin anew: late rather than twice."""
    fair.intake('h0', pair_report(0, (1, 30)), 1.0)
    fair.intake('h0', pair_report(0, (1, 5)), 2.0)
    assert sent(fair) == pytest.approx([35, 0, 0])
    fair.load_groups([member('g', 0, 'h9'), member('g', 1, 'h1'),
                      member('g', 2, 'h2')], [stored()])
    fair.intake('h0', pair_report(1), 2.5)
    fair.intake('h9', pair_report(0, (1, 10)), 3.0)
    assert sent(fair) == pytest.approx([35, 0, 0])
    fair.intake('h9', pair_report(0, (1, 25)), 4.0)
    assert sent(fair) == pytest.approx([50, 0, 0])


def test_what_is_no_coflows_is_background(state):
    state.intake('h0', report(0, uplink=0), 1.0)
    state.intake('h0', report(50, uplink=1050), 2.0)
    assert state.view('h0', 2.0).background_bps == pytest.approx(8000)
    assert state.view('h0', 2.0).observed_bps['c'] == pytest.approx(400)


def test_background_is_taken_off_as_soon_as_it_is_counted(state):
    state.intake('h0', report(0, uplink=0), 1.0)
    state.views(1.0)
    state.intake('h0', report(0, uplink=1e6), 2.0)
    egress_bps, _ingress_bps = state.payload_rates(['h0'], 2.0, False)['h0']
    assert egress_bps == pytest.approx(
        (1e8 - 8e6) / state._rules.wire_factor)


def test_the_database_never_takes_progress_back(state):
    state.intake('h0', report(30), 1.0)
    state.load_groups([member('g', i, f'h{i}') for i in range(3)],
                      [stored(progress='[1, 1, 1]')])
    assert sent(state) == pytest.approx([20, 10, 0])


def test_a_host_is_quiet_since_it_was_met_or_reported(state):
    state.meet({'a', 'b'}, 0.25)
    state.intake('b', report(), 0.5)
    assert state.quiet_hosts(0.25) == set()
    assert state.quiet_hosts(0.5) == {'a'}
    assert state.quiet_hosts(0.75) == {'a', 'b'}


def test_a_host_is_stored_and_loaded(state):
    port = {'vm': 'g-0', 'dev': 't', 'ips': ['10.0.0.1']}
    state.intake('h0', report(30, ports=[port]), 1.0)
    (row,) = state.take_unsaved().hosts
    again = live_state.LiveState()
    again.load_groups([member('g', i, f'h{i}') for i in range(3)],
                      [stored(progress='[20, 10, 0]')])
    again.load_hosts([types.SimpleNamespace(**host_state.encoded(row))])
    assert again._addresses.of_vm == {
        'g-0': ('h0', ('10.0.0.1',), (math.inf, math.inf), ())}
    again.intake('h0', report(60, ports=[port]), 2.0)
    assert sent(again) == pytest.approx([40, 20, 0])


def test_a_process_that_follows_learns_links_from_the_database(state):
    """It met the host before the leader stored its first report."""
    state.intake('h0', report(30), 1.0)
    (row,) = state.take_unsaved().hosts
    row = types.SimpleNamespace(**host_state.encoded(row))
    follower = live_state.LiveState()
    follower.meet({'h0'}, 0.5)
    default_bps = follower.view('h0', 0.5).capacity.egress_bps
    follower.load_hosts([row])
    link = state.view('h0', 1.0).capacity
    assert link.egress_bps != default_bps
    assert follower.view('h0', 1.0).capacity == link
    # Nothing is read twice.
    known = follower._hosts['h0'].report
    follower.load_hosts([row])
    assert follower._hosts['h0'].report is known


def test_a_process_that_follows_knows_background_traffic(state):
    follower = live_state.LiveState()
    # More than the share that coflows leave anyway.
    for now_s, uplink in ((1.0, 0), (2.0, 1e6), (3.0, 5e6)):
        state.intake('h0', report(50, uplink=uplink), now_s)
        (row,) = state.take_unsaved().hosts
        follower.load_hosts([types.SimpleNamespace(**host_state.encoded(row))])
        asked = ['h0'], now_s, False
        assert follower.payload_rates(*asked)['h0'] == pytest.approx(
            state.payload_rates(*asked)['h0'])
        assert follower.view('h0', now_s).background_bps == pytest.approx(
            state.view('h0', now_s).background_bps, abs=0.5)
    assert follower.view('h0', 3.0).background_bps > 8e6


@pytest.mark.parametrize(('last_report', 'kept'), [
    (None, '{}'), (None, '{"coflows": [], "pairs": [], "counters": {}}'),
    (1.0, '{"epoch": "e", "applied_generation": 3, "ports": [], "link": '
          '{"egress_bps": 1e8, "ingress_bps": 1e8}, "coflows": [], "pairs": '
          '[], "uplink_sent_bytes": 7, "shared": {"host": {"drops": 1}}, '
          '"counters": {"epoch": "e", "values": {"/uplink": 7}}}')])
def test_a_host_of_the_release_before_is_loaded(last_report, kept):
    state = live_state.LiveState()
    state.load_hosts([types.SimpleNamespace(
        host='h0', first_seen=1.0, last_report=last_report, report=kept,
        minors='{}')])
    found = state.view('h0', 2.0)
    assert found.last_report_s == last_report
    assert found.report.applied_generation == (3 if last_report else 0)
    state.intake('h0', report(0, uplink=7), 2.0)
    assert state.view('h0', 2.0).background_bps == 0


def recurring(iterations=0, **values):
    """One flow of 1 MB from h0 to h1; quiet after 1 s."""
    found = live_state.LiveState()
    found.load_groups(
        [member('g', i, f'h{i}') for i in range(2)],
        [stored(flows='[[0,1,1000000]]', iterations=iterations, **values)])
    return found


def shown(state):
    tracked = state._groups.coflows['c']
    return tracked.state, tracked.iteration


def test_a_recurring_coflow_begins_anew_with_all_of_its_matrix():
    state = recurring()
    state.intake('h0', report(1_000_000), 1.0)
    assert advance(state, 1.0) == [states.CoflowState.DONE]
    # Its pairs are still looked after, with what is to come.
    assert pair_bytes(state) == {('h0', 'h1'): 1e6}
    assert dict(state.loads('other')[0].out_bytes) == {'h0': 1e6}
    assert advance(state, 60.0) == []
    assert state.intake('h0', report(1_020_000), 61.0)
    assert advance(state, 61.0) == [states.CoflowState.ACTIVE]
    assert shown(state) == (states.CoflowState.ACTIVE, 2)
    assert state._groups.coflows['c'].arrival_s == 61.0
    assert sent(state) == [20_000]
    state.intake('h0', report(2_000_000), 62.0)
    assert advance(state, 62.0) == [states.CoflowState.DONE]
    assert shown(state) == (states.CoflowState.DONE, 2)


@pytest.mark.parametrize(('order', 'compute_s'), [
    (None, 0.5), ('intensity', 0.5), ('mrtf', 0.0)])
def test_a_job_may_be_served_as_others_are(order, compute_s):
    state = recurring(compute_s=0.5, served_by=order)
    shown = state.snapshot(schedule_input.Options(), 1.0).coflows[0]
    assert shown.live.compute_s == compute_s


def test_the_load_of_a_job_is_what_is_left_of_an_iteration():
    state = recurring(compute_s=0.5)
    state.intake('h0', report(400_000), 1.0)
    load, = state.loads()
    assert dict(load.out_bytes) == {'h0': 600_000}


@pytest.mark.parametrize(('claimed_s', 'told'), [(0.9, 0), (50.0, 1)])
def test_computing_counts_as_far_as_iterations_have_time(claimed_s, told):
    """An iteration of 1 MB each second; alone it needs 0.08 s."""
    state = recurring(compute_s=claimed_s)
    for second in range(1, 60):
        state.intake('h0', report(second * 1_000_000), float(second))
        state.intake('h1', report(0), float(second))
        state.advance(float(second))
        if second < 20:
            assert state.statuses()['c'].counted_compute_s == claimed_s
    status = state.status('c')
    assert status.measured_period_s == pytest.approx(1, rel=0.15)
    assert status.counted_compute_s == pytest.approx(0.95, rel=0.2)
    assert state.snapshot(schedule_input.Options(), 60.0).coflows[
        0].live.compute_s == status.counted_compute_s
    assert state.count_overstating() == told
    unsaved = state.take_unsaved()
    assert [one.coflow_id for one in unsaved.findings] == ['c'] * told
    if told:
        assert unsaved.findings[0].detail.startswith(
            'c hints compute 50 s, but an iteration takes 1')
    # It is told again only where the database did not take it.
    state.not_saved(unsaved)
    assert len(state.take_unsaved().findings) == told
    state.saved(unsaved)
    assert state.take_unsaved().findings == ()


def test_the_last_bytes_of_an_iteration_do_not_begin_the_next():
    state = recurring()
    state.intake('h0', report(1_000_000), 1.0)
    advance(state, 1.0)
    # Headers were larger than thought; nothing comes after these.
    assert not state.intake('h0', report(1_050_000), 2.0)
    for tenths in range(20, 100):
        assert advance(state, tenths / 10) == []
    # They are no part of what comes later, either.
    state.intake('h0', report(1_070_000), 10.0)
    assert advance(state, 10.0) == [states.CoflowState.ACTIVE]
    assert sent(state) == [20_000]


def test_iterations_without_a_pause_are_told_apart():
    state = recurring()
    state.intake('h0', report(1_000_000), 1.0)
    advance(state, 1.0)
    state.intake('h0', report(1_090_000), 1.1)
    assert advance(state, 1.1) == []
    assert state.intake('h0', report(1_200_000), 1.2)
    assert advance(state, 1.2) == [states.CoflowState.ACTIVE]
    assert sent(state) == [200_000]


def test_noise_is_no_iteration():
    state = recurring()
    state.intake('h0', report(1_000_000), 1.0)
    advance(state, 1.0)
    for i in range(1, 200):
        now_s = 10.0 * i
        assert not state.intake('h0', report(1_000_000 + 100 * i), now_s)
        assert advance(state, now_s) == []
        assert advance(state, now_s + 5) == []


def test_after_the_last_iteration_it_is_over():
    state = recurring(2)
    state.intake('h0', report(1_000_000), 1.0)
    assert advance(state, 1.0) == [states.CoflowState.DONE]
    state.intake('h0', report(1_500_000), 5.0)
    assert advance(state, 5.0) == [states.CoflowState.ACTIVE]
    state.intake('h0', report(2_000_000), 6.0)
    assert advance(state, 7.0) == [states.CoflowState.DONE]
    assert state._groups.coflows == {}
    assert state._groups.ended['c'].iteration == 2


@pytest.mark.parametrize('when', ['active', 'resting'])
def test_a_declared_end_is_final(when):
    state = recurring()
    if when == 'resting':
        state.intake('h0', report(1_000_000), 1.0)
        advance(state, 1.0)
    state.finish('c', 3.0)
    assert state._groups.coflows == {}
    assert state._groups.ended['c'].ended_s == (
        1.0 if when == 'resting' else 3.0)
    state.intake('h0', report(5_000_000), 4.0)
    assert advance(state, 4.0) == []


def test_a_pair_belongs_to_the_coflow_that_is_not_between_iterations(fair):
    both = [stored('a', flows='[[0,1,100]]', iterations=0,
                   state=states.CoflowState.DONE, ended_at=0.0),
            stored('b', flows='[[0,1,100]]')]
    fair.load_groups([member('g', i, f'h{i}') for i in range(2)], both)
    fair.intake('h0', pair_report(0, (1, 60)), 1.0)
    assert fair._groups.coflows['b'].progress.sent_bytes.tolist() == [60]
    assert fair._groups.coflows['a'].counting.sent_bytes.tolist() == [0]


def test_pairs_begin_an_iteration_too():
    """And what is known of earlier ones is not counted again."""
    state = recurring()
    state.count_pairs(True)
    for host in range(2):
        state.intake(f'h{host}', pair_report(host), 0.5)
    state.intake('h0', pair_report(0, (1, 1_000_000)), 1.0)
    assert advance(state, 1.0) == [states.CoflowState.DONE]
    assert state.intake('h0', pair_report(0, (1, 1_400_000)), 2.0)
    assert advance(state, 2.0) == [states.CoflowState.ACTIVE]
    again = recurring(iteration=2, progress='[400000]')
    again.count_pairs(True)
    again.intake('h1', pair_report(1), 3.0)
    again.intake('h0', pair_report(0, (1, 1_500_000)), 3.0)
    assert sent(again) == [500_000]


def test_iterations_that_come_too_fast_for_reports_are_no_overrun():
    """Two in one report, of three to come; the third may not be exceeded."""
    state = recurring(3)
    state.intake('h0', report(2_500_000), 1.0)
    assert state.debts() == {}
    endless = recurring(0)
    endless.intake('h0', report(90_000_000), 1.0)
    assert endless.debts() == {}
    once = recurring(1)
    once.intake('h0', report(2_500_000), 1.0)
    assert once.debts() == {'p': 1_000_000}
    # What was counted before a debt does not pay for it.
    advance(once, 1.0)
    assert once.debts() == {'p': 1_000_000}


def two_groups(hosts=('h0', 'h1', 'h2')):
    return ([member('g', i, host) for i, host in enumerate(hosts)]
            + [member('g2', i, f'h{i}') for i in range(3)],
            [stored(), stored('c2', 'g2')])


def test_only_what_moved_gets_another_way():
    state = live_state.LiveState()
    state.load_groups(*two_groups())
    before = {name: state._shown(tracked).table
              for name, tracked in state._groups.coflows.items()}
    assert before['c'].pairs is state._groups.coflows['c'].route.pairs
    state.load_groups(*two_groups(['h0', 'h9', 'h2']))
    after = {name: state._shown(tracked).table
             for name, tracked in state._groups.coflows.items()}
    assert after['c2'] is before['c2']
    assert after['c'].pairs == (('h0', 'h9'), ('h0', 'h2'), ('h9', 'h2'))
    assert state._groups.coflows['c'].route.pairs == after['c'].pairs


def test_one_group_is_read_anew_and_the_others_stay():
    state = live_state.LiveState()
    state.load_groups(*two_groups())
    before = {name: (tracked, state._shown(tracked).table)
              for name, tracked in state._groups.coflows.items()}
    state.load_groups([member('g', i, f'h{i}') for i in range(2)],
                      [stored()], {'g'})
    assert state._groups.coflows.keys() == {'c', 'c2'}
    assert state._groups._members.keys() == {'g', 'g2'}
    assert len(state._groups._members['g']) == 2
    after = {name: (tracked, state._shown(tracked).table)
             for name, tracked in state._groups.coflows.items()}
    assert after['c2'] == before['c2']
    assert after['c'][0] is before['c'][0]
    assert after['c'][1] is not before['c'][1]
    # Over, and one that is new.
    state.load_groups([member('g3', 0, 'h0')], [stored('c3', 'g3')],
                      {'g', 'g3'})
    assert state._groups.coflows.keys() == {'c2', 'c3'}
    assert state._groups._members.keys() == {'g2', 'g3'}
    # Without bounds what is not read is over.
    state.load_groups([member('g3', 0, 'h0')], [stored('c3', 'g3')])
    assert state._groups.coflows.keys() == {'c3'}
    assert state._groups._members.keys() == {'g3'}


def test_a_coflow_that_was_dropped_is_read_anew():
    state = live_state.LiveState()
    state.load_groups(*two_groups())
    table(state)
    del state._groups.coflows['c']
    members, coflows = two_groups()
    coflows[0] = stored(flows='[[1,0,5]]')
    state.load_groups(members, coflows)
    assert table(state).pairs == (('h1', 'h0'),)
    assert pair_bytes(state) == {('h1', 'h0'): 5}


def test_only_whose_address_changed_gets_other_entries():
    def ports(ip):
        return [{'vm': 'g-0', 'ips': [ip]},
                {'vm': 'g2-0', 'ips': ['10.9.9.9']}]

    def addresses(table):
        return {flow.src_ips for flow in table['c'].flows['h0']}

    state = live_state.LiveState()
    state.load_groups(*two_groups())
    tables = []
    for ip in ('10.0.0.1', '10.0.0.2'):
        state.intake('h0', report(ports=ports(ip)), 1.0)
        tables.append({name: state._shown(tracked).table
                       for name, tracked in state._groups.coflows.items()})
        assert addresses(tables[-1]) == {(ip,)}
    assert tables[0]['c2'] is tables[1]['c2']
    state.intake('h0', report(ports=ports('10.0.0.2')[1:]), 2.0)
    assert addresses({'c': table(state)}) == {()}


def test_flows_of_a_shelved_vm_wait_for_it():
    state = recurring(iterations=1)
    state.intake('h0', report(10), 1.0)
    assert advance(state, 1.0) == []
    away = member('g', 0, None, states.MemberState.VACANT)
    state.load_groups([away, member('g', 1, 'h1')],
                      [stored(flows='[[0,1,1000000]]')])
    assert advance(state, 60.0) == []
    away.instance_uuid = None
    state.load_groups([away, member('g', 1, 'h1')],
                      [stored(flows='[[0,1,1000000]]')])
    assert advance(state, 61.0) == [states.CoflowState.DONE]


def span(state):
    return state.status('c').span


def test_the_cct_is_from_the_first_byte_to_the_last():
    state = recurring(iterations=1)
    state.intake('h0', report(0), 10.0)
    assert span(state) is None
    for now_s, count in ((11.0, 0), (12.0, 400_000), (13.0, 800_000),
                         (14.0, 800_000), (15.0, 1_000_000)):
        state.intake('h0', report(count), now_s)
    advance(state, 15.0)
    found = span(state)
    assert (found.first_s, found.last_s) == ((11.0, 12.0), (14.0, 15.0))
    assert (found.cct_s, found.cct_error_s) == (3.0, 1.0)


def test_noise_before_a_coflow_is_not_part_of_it():
    state = recurring(iterations=1)
    state.intake('h0', report(0), 1.0)
    state.intake('h0', report(300), 2.0)
    state.intake('h0', report(300_300), 50.0)
    state.intake('h0', report(600_300), 51.0)
    assert span(state).first_s == (2.0, 50.0)
    # But a pause within it is.
    state.intake('h0', report(1_000_000), 90.0)
    assert span(state).first_s == (2.0, 50.0)


def test_each_iteration_is_measured():
    state = recurring()
    state.intake('h0', report(0), 1.0)
    for now_s, count in ((2.0, 500_000), (3.0, 1_000_000)):
        state.intake('h0', report(count), now_s)
    advance(state, 3.0)
    assert span(state).cct_s == 1.0
    for now_s, count in ((20.0, 1_000_000), (21.0, 1_100_000),
                         (24.0, 1_100_000), (25.0, 2_000_000)):
        state.intake('h0', report(count), now_s)
        advance(state, now_s)
    assert shown(state) == (states.CoflowState.DONE, 2)
    assert span(state).cct_s == 4.0


def test_what_was_measured_survives_a_restart():
    state = recurring(iterations=1)
    state.intake('h0', report(0), 1.0)
    state.intake('h0', report(500_000), 2.0)
    (row,) = state.take_unsaved().coflows
    again = recurring(iterations=1, **{
        name: row[name] for name in (
            'progress', 'first_byte_at', 'last_byte_at',
            'measured_cct_error_s')})
    assert span(again) == span(state)
    again.intake('h0', report(0, epoch='f'), 6.0)
    again.intake('h0', report(500_000, epoch='f'), 7.0)
    assert span(again).cct_s == 5.0


def test_a_heartbeat_says_that_nothing_was_sent_since(state):
    state.intake('h0', report(0, uplink=0), 1.0)
    state.intake('h0', report(50, uplink=1050), 2.0)
    busy = state.view('h0', 2.0)
    state.heard({'h0', 'nobody'}, 12.0)
    quiet = state.view('h0', 12.0)
    assert quiet.last_report_s == 12.0
    assert quiet.observed_bps['c'] < busy.observed_bps['c'] / 100
    assert quiet.background_bps < busy.background_bps / 2
    state.intake('h0', report(150, uplink=1150), 13.0)
    assert sent(state) == pytest.approx([100, 50, 0])
    assert not state.is_known('nobody')


def test_a_promise_survives_a_restart():
    """What it holds is what is left of its bytes, of planned members too."""
    state = live_state.LiveState()
    state.meet(['h0', 'h1', 'h2'], 1.0)
    state.load_groups([
        member('g', row, f'h{row}', states.MemberState.PLANNED)
        for row in range(3)], [
            stored(deadline_at=60.0, is_promised=True),
            stored('d', deadline_at=60.0),
            stored('e', deadline_at=5.0, is_promised=True)])
    ports, claims = state.promised(10.0, False)
    assert claims.ids == ('c',)
    assert claims.left_s.tolist() == [50.0]
    assert claims.port_s.max() > 0
    tracked = state._groups.coflows['c']
    assert seen(tracked).live.deadline_s == 60.0
    assert seen(tracked).live.is_promised
    assert not seen(state._groups.coflows['d']).live.is_promised
    # At its end there is nothing to be held for it any more.
    assert state.promised(59.9, False)[1].ids == ('c',)
    assert state.promised(60.0, False)[1].ids == ()


def test_promises_are_held_in_payload():
    plane = tree.Plane(roots=(tree.Node(
        'r', ('h0', 'h1'), uplink=tree.Uplink(1.5e8, 2.5e8)),))
    state = live_state.LiveState(
        schedule_input.Rules(wire_overhead_fraction=0.25,
                             share=schedule_input.Share(0.2)),
        plane=lambda: plane)
    for host in ('h0', 'h1'):
        state.intake(host, report(), 1.0)
    ports, claims = state.promised(1.0, False)
    # Egress and ingress of both, then the uplink out and in.
    assert ports.cap_bps.tolist() == pytest.approx([
        bps * 0.8 / 1.25 for bps in (1e8, 1e8, 3e8, 3e8, 1.5e8, 2.5e8)])
    assert claims.ids == ()


def test_a_promise_to_capped_vms_holds_what_their_caps_let_through():
    """Its slowest cap is that of the VM that receives 75 bytes."""
    members = [member('g', row, f'h{row}', states.MemberState.PLANNED)
               for row in range(3)]
    members[0].egress_cap_bps = 1500.0
    members[2].ingress_cap_bps = 50.0
    state = live_state.LiveState(schedule_input.Rules(
        wire_overhead_fraction=0.25))
    state.meet(['h0', 'h1', 'h2'], 1.0)
    state.load_groups(members, [stored(deadline_at=60.0, is_promised=True)])
    assert state.promised(10.0, False)[1].caps_s == pytest.approx(
        [75 * 8 * 1.25 / 50])
    members[0].egress_cap_bps = 10.0
    state.load_groups(members, [stored(deadline_at=60.0, is_promised=True)])
    assert state.promised(10.0, False)[1].caps_s == pytest.approx(
        [150 * 8 * 1.25 / 10])


def test_limits_of_neutron_hold_beside_those_of_the_host():
    members = [member('g', row, f'h{row}') for row in range(3)]
    members[0].egress_cap_bps = members[0].egress_limit_bps = 5e6
    members[2].ingress_limit_bps = 4e6
    state = live_state.LiveState()
    state.load_groups(members, [stored()])

    def rates_bps():
        (coflow,) = state.snapshot(schedule_input.Options(), 2.0).coflows
        return coflow.live.capped.rates_bps

    assert rates_bps() == {('h0', 'egress', 'g-0'): 5e6,
                           ('h2', 'ingress', 'g-2'): 4e6}
    # No device has what a meter of OVN does.
    for row in (0, 2):
        state.intake(f'h{row}', report(ports=[reports.Port(f'g-{row}')]),
                     1.0)
    assert rates_bps() == {('h0', 'egress', 'g-0'): 5e6,
                           ('h2', 'ingress', 'g-2'): 4e6}
    state.intake('h2', report(ports=[reports.Port(
        'g-2', ingress_cap_bps=2e6)]), 1.5)
    assert rates_bps()['h2', 'ingress', 'g-2'] == 2e6
    members[0].egress_limit_bps = None
    state.load_groups(members, [stored()])
    assert rates_bps() == {('h2', 'ingress', 'g-2'): 2e6}


def test_caps_are_known_after_a_takeover():
    """Those of flavors by the members, others by the hosts' last reports."""
    members = [member('g', row, f'h{row}') for row in range(3)]
    members[0].egress_cap_bps = 8e6
    members[2].ingress_cap_bps = 4e6
    state = live_state.LiveState(schedule_input.Rules(
        wire_overhead_fraction=0.25))
    state.load_groups(members, [stored()])
    known_as = routes.Member('g-2', 'h2', True, (math.inf, 4e6))
    assert state.payload_caps([known_as]) == [(math.inf, 3.2e6)]
    state.intake('h2', report(ports=[reports.Port(
        'g-2', ingress_cap_bps=2e6)]), 1.0)
    assert state.payload_caps([known_as]) == [(math.inf, 1.6e6)]
    told = state.take_unsaved().hosts
    after = live_state.LiveState()
    after.load_groups(members, [stored()])
    after.load_hosts([types.SimpleNamespace(**host_state.encoded(row))
                      for row in told])
    for one in (state, after):
        (coflow,) = one.snapshot(schedule_input.Options(), 2.0).coflows
        assert coflow.live.capped.rates_bps == {
            ('h0', 'egress', 'g-0'): 8e6, ('h2', 'ingress', 'g-2'): 2e6}
