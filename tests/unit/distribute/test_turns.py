# SPDX-License-Identifier: Apache-2.0

"""What a server does again and again: turns, trains, budgets and limits."""

import asyncio
import dataclasses
import resource
import socket
import types

import pytest

from tests.unit import made
from virtco.distribute import connection
from virtco.distribute import server
from virtco.distribute import token_bucket

REPORT = made.report()


def test_silent_edge_modules_are_let_go(make):
    site = make(heartbeat_s=2)
    old, new, unknown = site.join('h1'), site.join('h2'), site.join()
    site.server.clock = lambda: 106.0
    old.heard_s, new.heard_s = 99.9, 100.0
    assert site.run(site.server._watch) == [1.0]
    assert old.refused == [('h1 is silent',)]
    assert new.refused == unknown.refused == []


def test_broken_files_of_tls_show_while_nobody_connects(make):
    site, looks = make(heartbeat_s=2), []
    site.server._tls = types.SimpleNamespace(
        context=lambda: looks.append(len(looks)))
    site.run(site.server._watch)
    assert looks == [0]


def test_who_is_not_read_is_not_silent(make):
    site = make(heartbeat_s=2)
    edge = site.join('h1')
    site.server.clock = lambda: 106.1
    edge.is_paused = True
    site.run(site.server._watch)
    assert edge.refused == []


def test_a_host_pays_from_one_budget_whatever_costs(make, caplog):
    site = make()
    site.server.clock = lambda: 100.0
    spent_s = {'h1': 0.5 * token_bucket.BURST_CPU_S}
    site.server.doors = dataclasses.replace(
        site.server.doors, spent_s=lambda host: spent_s.pop(host, 0.0))

    def charge(host, bursts, cpu_bursts):
        return site.server.charge(
            host, bursts * token_bucket.BURST_BYTES,
            cpu_bursts * token_bucket.BURST_CPU_S)

    assert charge('h1', 0, 0.5) == charge('h2', 1, 1) == 0
    assert caplog.messages == []
    assert site.counted('virtco_edge_throttled_total') == 0
    assert charge('h1', 0, 0.1) == pytest.approx(
        0.1 * token_bucket.BURST_CPU_S / token_bucket.CPU_PER_S)
    assert charge('h2', 0.5, 0) == pytest.approx(
        0.5 * token_bucket.BURST_BYTES / token_bucket.BYTES_PER_S)
    assert caplog.messages == [
        'h1 says more than its budget allows, and is read again in 1.0 s.']
    assert site.counted('virtco_edge_throttled_total') == 2


def test_who_comes_back_owes_what_it_owed(make):
    site = make()
    edge = site.join('h1')
    site.server.clock = lambda: 100.0
    site.server.charge('h1', 2 * token_bucket.BURST_BYTES, 0)
    site.server.closed(edge)
    site.run(site.server._watch)
    assert site.server.charge('h1', 0, 0) > 0


def test_silent_peers_are_let_go(make):
    site = make(heartbeat_s=20)
    old, new = site.join_peer('p1'), site.join_peer('p2')
    site.server.clock = lambda: 102.5
    old.heard_s, new.heard_s = 99.9, 100.0
    assert site.run(site.server._say_alive_to_peers) == [0.5]
    assert old.refused == [('it is silent',)] and new.refused == []


@pytest.mark.parametrize('leads, epoch', [(True, 9), (False, 0)])
def test_each_edge_module_hears_in_turn(make, leads, epoch):
    site = make()
    site.leads = leads
    site.server.clock = lambda: 100.0
    found = [site.join(f'h{number}', address=str(number)).seat
             for number in range(12)]
    relayed = site.join_peer(hosts=['h12']).peer.seats['h12']
    for one in (*found, relayed):
        one.take()
    assert site.run(site.server._say_alive) == [0.25]
    assert [bool(one.told) for one in found] == [
        number in (1, 11) for number in range(12)]
    assert found[1].take() == [
        {'type': 'alive', 'epoch': epoch, 'alive_s': 2.5, 'n_hosts': 0}]
    found[11].take()
    # By a clock that stands still they are due later and later.
    assert site.run(site.server._say_alive, 10) == [
        0.25 * turn for turn in range(1, 11)]
    assert all(len(one.take()) == 1 for one in found)
    # The relay says so to those behind it.
    assert relayed.take() == []


def test_peers_hear_how_many_hosts_there_are(make):
    site = make(n_hosts=70)
    relay = site.join_peer(hosts=['h1', 'h2'])
    edge = site.join('h3')
    relay.take()
    edge.seat.take()
    relay.peer.seats['h1'].session.report = REPORT
    assert site.run(site.server._say_alive_to_peers) == [0.5]
    assert relay.take() == [{'type': 'alive', 'epoch': 9,
                             'alive_s': 0.5, 'n_hosts': 70}]
    assert edge.seat.take() == []
    # The heartbeats of its hosts end at the relay.
    assert site.server._heard == {'h1'}
    assert relay.refused == edge.refused == []


@pytest.mark.parametrize('leader', ['a:1', ''])
def test_a_process_that_does_not_lead_any_more_lets_all_go(make, leader):
    site = make()
    relay, edge, unknown = (site.join_peer(hosts=['h2']), site.join('h1'),
                            site.join())
    other = site.join_peer('p2')
    relay.take()
    other.take()
    site.leader = leader
    site.run(site.server._say_alive_to_peers)
    assert relay.refused == edge.refused == [
        (connection.why_not_here(leader), leader)]
    # It is told when it says who it is.
    assert unknown.refused == [] and relay.take() == []
    # Who speaks for nobody may still say that the database is away.
    assert bool(other.refused) is bool(leader) and other.take() == []


def ordered(site, trains, done):
    """One round of trains, with a loop that runs."""
    async def work():
        site.server.doors = dataclasses.replace(
            site.server.doors, trains=trains)
        task = asyncio.create_task(site.server._turn())
        while not done():
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    site.server.loop.run_until_complete(work())


def test_trains_are_handed_out_when_they_are_ordered(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 60.0)
    site, asked = make(), []
    one = site.join('h1').seat
    one.take()
    site.take()
    site.server._heard = {'h1', 'h2'}
    site.server._ordered.set()

    def trains(hosts):
        asked.append(hosts)
        return {'gone': {}, 'h1': {'probe_id': 'p'}}

    ordered(site, trains, lambda: one.told)
    assert one.take() == [{'type': 'probe', 'order': {'probe_id': 'p'}}]
    assert asked == [['h1']] and not site.server._ordered.is_set()
    assert site.take() == [('heard', {'h1', 'h2'})]
    assert site.server._heard == set()


def test_rounds_of_trains_begin_by_time(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 0.0)
    site, asked = make(), []
    site.join('h1')
    site.take()
    ordered(site, lambda hosts: asked.append(hosts) or {},
            lambda: len(asked) > 1)
    # Nobody was heard, so nothing is told.
    assert site.take() == []


def test_without_edge_modules_no_trains_are_asked_for(make, monkeypatch):
    monkeypatch.setattr(server, 'TURN_S', 0.0)
    site, asked = make(), []
    site.server._heard = {'h1'}
    ordered(site, asked.append, lambda: site.notes)
    assert site.take() == [('heard', {'h1'})] and asked == []


def test_an_accept_that_fails_is_told_and_tried_again(make, monkeypatch,
                                                      caplog):
    async def refuse(_listener):
        raise OSError(24, 'Too many open files')

    site = make()
    monkeypatch.setattr(site.server, 'loop', types.SimpleNamespace(
        sock_accept=refuse))
    assert site.run(site.server._accept, 2) == [0.1, 0.1]
    assert caplog.messages == [
        'Cannot accept a connection: [Errno 24] Too many open files']


def test_the_log_has_one_line_in_a_while(make, caplog):
    site = make()
    # The first line comes at once, though the machine has just started.
    now = [0.0]
    site.server.clock = lambda: now[0]
    for step_s in (0, 1, 8.9, 0.1, 9.9):
        now[0] += step_s
        site.server._log('Something of %s', now[0])
    assert [record.getMessage() for record in caplog.records] == [
        'Something of 0.0', 'Something of 10.0']


def test_who_is_refused_is_counted(make, caplog):
    site = make()
    site.server.refused('h1', 'why')
    assert site.n_refused('protocol') == 1
    assert 'h1: why' in caplog.text


def test_addresses_of_both_families():
    assert server._family('::') is socket.AF_INET6
    assert server._family('0.0.0.0') is socket.AF_INET


@pytest.mark.parametrize(('limits', 'most'), [
    ((10, 5000), 1100), ((10, 1050), 1050), ((1099, 5000), 1100),
    ((1100, 5000), None), ((4000, 5000), None),
    ((10, resource.RLIM_INFINITY), 1100)])
def test_files_for_all_connections(monkeypatch, limits, most):
    told = []
    monkeypatch.setattr(resource, 'getrlimit', lambda _kind: limits)
    monkeypatch.setattr(resource, 'setrlimit',
                        lambda _kind, values: told.append(values))
    server._raise_file_limit(76)
    assert told == ([] if most is None else [(most, limits[1])])
