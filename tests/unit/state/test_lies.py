# SPDX-License-Identifier: Apache-2.0

"""What a host may say that is not so, and how far it gets with it."""

import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from virtco.state import addresses
from virtco.state import byte_counters
from virtco.state import host_state
from virtco.state import live_state
from virtco.state import schedule_input

MAC, OWN = '02:00:00:00:00:01', '02:00:00:00:00:09'


@pytest.fixture
def state():
    found = live_state.LiveState()
    found.load_groups([known.member('g', i, f'h{i}') for i in range(3)],
                      [known.stored()])
    return found


def coflows(sent_bytes, *ids):
    return [{'coflow_id': one, 'sent_bytes': sent_bytes, 'backlog_bytes': 1,
             'destinations': [{'host': f'to-{one}', 'sent_bytes': 1}]}
            for one in ids]


def test_of_a_coflow_that_is_not_known_only_its_bytes_are_kept(state):
    """They are no other traffic, either."""
    ids = [f'made-up-{number}' for number in range(9)]
    for turn in (1, 2):
        state.intake('h0', made.report(
            coflows=coflows(1000 * turn, *ids, 'c'),
            uplink_sent_bytes=10_000 * turn), float(turn))
    host = state._hosts['h0']
    assert [one.coflow_id for one in host.report.coflows] == ['c']
    assert host.observed.keys() == {'c'}
    assert {delta.coflow_id for delta in host.deltas} == {'c'}
    assert host.background.value == 0
    assert host.counters.values.keys() == {*ids, 'c', 'c/to-c', '/uplink'}


def test_a_coflow_that_is_read_late_counts_from_there_on(state):
    state.intake('h0', made.report(coflows=coflows(30, 'late')), 1.0)
    state.load_groups(
        [known.member('g', i, f'h{i}') for i in range(3)],
        [known.stored(), known.stored('late')])
    state.intake('h0', known.report(50, coflow_id='late'), 2.0)
    assert state.status('late').sent_bytes == pytest.approx(20)


def test_counters_that_a_host_makes_up_are_not_stored(state, monkeypatch):
    monkeypatch.setattr(byte_counters, 'MANY_COUNTERS', 4)
    state.intake('h1', known.report(destinations={'h2': 1}), 1.0)
    state.intake('h2', made.report(), 1.0)
    state.intake('h0', made.report(
        coflows=[*coflows(5, 'a', 'b', 'd'), {
            'coflow_id': 'c', 'sent_bytes': 9, 'destinations': [
                {'host': host, 'sent_bytes': 2}
                for host in ('h1', 'nowhere')]}],
        uplink_sent_bytes=7), 1.0)
    stored = {row['host']: host_state._KEPT.decode(
        host_state.encoded(row, state.may_return)['report']).counters.values
        for row in state.take_unsaved().hosts}
    assert stored['h0'] == {'c': 9, 'c/h1': 2, '/uplink': 7}
    # A few are not looked at.
    assert stored['h1'] == {'c': 1, 'c/h2': 1, '/uplink': 1}


def test_who_is_always_in_a_hurry_waits_for_its_turn(state):
    def hurries(host, now_s, turn):
        return state.intake(host, made.report(ports=[
            {'vm': f'vm-{turn}'}]), now_s)

    found = [hurries('h0', 100.0, turn) for turn in range(50)]
    assert found == [turn < host_state.MOST_HURRIES for turn in range(50)]
    # The clock may be set back.
    assert not hurries('h0', 1.0, 50) and hurries('h1', 1.0, 0)
    later = [hurries('h0', 2.0 + turn / 10, turn) for turn in range(100)]
    assert sum(later) == pytest.approx(10 * host_state.HURRIES_PER_S, abs=3)


def test_a_flood_towards_new_vms_is_decided_on_at_once(state):
    def reports(sent_bytes, *macs):
        now_s[0] += 1.0
        return state.intake('h0', made.report(
            epoch='e', unmanaged={'macs': list(macs)},
            shared={'unmanaged': {'sent_bytes': sent_bytes}}), now_s[0])

    now_s = [100.0]
    reports(0)
    assert not reports(10**12)
    assert reports(2 * 10**12, MAC)
    assert not reports(3 * 10**12, MAC)


def ports(*vms, mac=MAC, **values):
    return made.report(ports=[{'vm': vm, 'mac': mac} for vm in vms], **values)


def places_of(state, mac=MAC):
    """Hosts to which traffic to the address is taken to go."""
    state.intake('h9', made.report(unmanaged={'macs': [mac]}), 5.0)
    return state.snapshot(schedule_input.Options(limit_senders=True), 6.0
                          ).senders['h9'].macs.keys()


def details(state):
    return [(one.key[0], one.kind, one.detail)
            for one in state.take_unsaved().findings]


@pytest.mark.parametrize('claim', [
    ports('other'), made.report(link={
        'egress_bps': 1e8, 'ingress_bps': 3e8, 'macs': [MAC]})])
@pytest.mark.parametrize('is_first', [True, False])
def test_the_address_of_a_vm_is_where_nova_has_the_vm(state, claim, is_first):
    """And who else claims it is named, whoever was first."""
    said = [('h1', ports('g-1')), ('h2', claim)]
    for host, report in said if is_first else reversed(said):
        state.intake(host, report, 1.0)
    assert places_of(state) == {'h1'}
    assert details(state) == [('h2', 'report_refused', (
        f'h2 reports the MAC address {MAC} of VM g-1, which runs on h1: '
        'refused'))]


def test_a_vm_on_its_way_is_no_lie(state):
    state.intake('h1', ports('g-1'), 1.0)
    state.intake('h2', ports('g-1'), 1.0)
    assert details(state) == [] and places_of(state) == {'h1'}


@pytest.mark.parametrize('vms', [('x', 'y'), ('g-1', 'g-2')])
def test_an_address_of_two_networks_is_at_both_hosts(state, vms):
    """Also where these are known to run there."""
    for host, vm in zip(('h1', 'h2'), vms):
        state.intake(host, ports(vm), 1.0)
    assert details(state) == [] and places_of(state) == {'h1', 'h2'}


def many(*rows):
    return made.report(ports=[{'vm': f'vm-{row}', 'ips': [f'10.0.0.{row}']}
                              for row in rows])


def test_very_many_ports_are_learned_in_parts(state, monkeypatch):
    monkeypatch.setattr(addresses, 'AT_ONCE', 2)
    parts = []
    real = state._groups.readdress
    monkeypatch.setattr(state._groups, 'readdress', lambda vms:
                        parts.append(len(vms)) or real(vms))
    state.intake('h0', many(*range(5)), 1.0)
    assert parts == [2, 2, 1]
    # Of a later report only what is new in it.
    state.intake('h0', many(*range(2, 6)), 2.0)
    assert parts[3:] == [2, 1]
    assert state.addresses_of(f'vm-{row}' for row in range(6)) == [
        (), (), *((f'10.0.0.{row}',) for row in range(2, 6))]
    state.intake('h0', many(), 3.0)
    assert not state._addresses.of_vm and not state._addresses._vms


def test_a_host_may_be_forgotten_between_two_parts(monkeypatch):
    monkeypatch.setattr(addresses, 'AT_ONCE', 2)
    found = addresses.Addresses()
    found.learn('h', many(0, 9).ports)
    parts = found.parts('h', addresses.of_ports('h', many(*range(5)).ports))
    next(parts)
    found.learn('h', ())
    assert list(parts) and found.of_vm.keys() <= {
        f'vm-{row}' for row in range(5)}
    found.learn('h', ())
    assert not (found.of_vm or found._vms or found._reported)


def test_a_host_that_was_forgotten_has_no_vm_that_waits(state):
    assert state.waiting('gone') == {}


def test_a_vm_that_was_forgotten_has_no_coflow(state):
    state._progress._refuse_port('h0', 'gone', 'h1')
    assert state.take_unsaved().findings == ()
