# SPDX-License-Identifier: Apache-2.0

"""Killed, locked out, full and damaged: what survives, and how fast."""

import contextlib
import json
import resource
import signal
import socket
import sqlite3
import uuid

import numpy as np
import pytest
import requests

from tests import patience
from tests.functional.controller import harness
from tests.functional.controller import test_policies as policies

BOUND_S = 8


@contextlib.contextmanager
def locked(path):
    """Another process holds the database for writing."""
    other = sqlite3.connect(path, isolation_level=None)
    other.execute('BEGIN EXCLUSIVE')
    try:
        yield
    finally:
        other.rollback()
        other.close()


def test_kill_and_restart_leave_the_state_intact(make):
    controller = make({'api': {'port': 0}})
    tenant = controller.tenant()
    hosts, edges = policies.one_pair(tenant)
    sender = edges[hosts[0]]
    planned = tenant.place(10, 'later', num_instances=4)['host']
    tenant.place(20, 'bad', 'x', status='ignored')
    tenant.call('PATCH', '/v1/settings', {'ceil': 'rate'})
    before = policies.settled(lambda: policies.with_flows(sender))
    coflow = tenant.coflow()
    sender.count(coflow['id'], 4e6 * policies.WIRE, hosts[1])
    sender.report()
    # The host's minors and counters reach the database within a second.
    harness.wait_for(lambda: stored(controller, 'SELECT sent_bytes FROM '
                                    'coflows WHERE sent_bytes > 0'))
    sender.count(coflow['id'], 1e6 * policies.WIRE, hosts[1])
    sender.report()
    rows = tenant.coflow('later')['hosts']
    controller.stop(signal.SIGKILL)

    sender.count(coflow['id'], 1e6 * policies.WIRE, hosts[1])
    controller.start()
    after = policies.settled(lambda: policies.with_flows(sender))
    assert after['generation'] > before['generation']
    assert [(c['coflow_id'], c['minor']) for c in after['classes']] == [
        (c['coflow_id'], c['minor']) for c in before['classes']]
    assert after['flows'] == before['flows']
    sender.report()
    assert tenant.coflow()['sent_bytes'] == pytest.approx(6e6, rel=1e-3)
    assert tenant.coflow()['arrival'] == pytest.approx(coflow['arrival'])
    assert tenant.coflow('later')['hosts'] == rows
    assert tenant.place(10, 'later', num_instances=4)['host'] == planned
    assert tenant.place(11, 'later', launch_index=1,
                        num_instances=4)['host'] == rows[1]
    assert tenant.call('GET', '/v1/settings')['ceil'] == 'rate'
    assert [e['kind'] for e in tenant.events()] == ['hint_ignored']


def stored(controller, query):
    with contextlib.closing(sqlite3.connect(controller.database)) as db:
        return db.execute(query).fetchall()


def test_kill_between_placements_loses_no_answer(make):
    """Whatever was answered is in the database, at any instant of a kill."""
    controller = make()
    tenant = controller.tenant()
    answers = {}
    for number in range(8):
        answers[number] = tenant.place(
            number, matrix='{"pattern":"ring","n":8,"flow_size":"1MB"}',
            launch_index=number, num_instances=8)['host']
        if number % 3 == 2:
            controller.stop(signal.SIGKILL)
            controller.start()
    for number, host in answers.items():
        assert tenant.stored(number)['host'] == host
    assert tenant.coflow()['hosts'] == list(answers.values())


REFUSED = 'virtco_placement_failures_total{reason="database"}'


def test_a_locked_database_makes_placements_neutral_at_once(shared):
    controller = shared
    tenant = controller.tenant()
    before = controller.metrics().get(REFUSED, 0)
    hosts, edges = policies.one_pair(tenant)
    sender = edges[hosts[0]]
    policies.settled(lambda: policies.with_flows(sender))
    with locked(controller.database):
        watch = patience.Stopwatch()
        answer = tenant.place(10, 'b', status='neutral')
        assert watch.seconds() < BOUND_S
        assert 'database' in answer['why']
        tenant.place(11, 'c', 'x', status='neutral')
        # The scheduler goes on: it needs the database for nothing here.
        sender.count(tenant.coflow()['id'], 10.5e6)
        sender.report()
        policies.settled(lambda: not policies.classes(sender))
        error = tenant.call('PATCH', '/v1/settings', {'ceil': 'rate'},
                            503)['error']
        assert error['code'] == 'virtco.database_unavailable'
        assert tenant.coflow()['state'] == 'done'
    assert controller.metrics()[REFUSED] == before + 2
    assert tenant.place(10, 'b')['status'] == 'planned'
    # What happened meanwhile is written down now.
    harness.wait_for(lambda: stored(
        controller, "SELECT 1 FROM coflows WHERE state = 'done' AND "
                    f"project_id = '{tenant.project}'"))


def test_notifications_under_a_locked_database_are_refused(shared):
    """503, so that the sender tries again; nothing is lost silently."""
    controller = shared
    tenant = controller.tenant()
    host = tenant.place(0)['host']
    with locked(controller.database):
        tenant.call('POST', '/v1/notifications', {
            'event_type': 'instance.create.end',
            'payload': {'nova_object.data': {
                'uuid': tenant.instance(0), 'host': tenant.host(host)}}},
            503)
    assert tenant.notify('instance.create.end', 0, host=host)


def test_a_full_disk_makes_placements_neutral(make):
    """The process may write no page of the database or of its log."""
    controller = make()
    tenant = controller.tenant()
    tenant.place(0)
    resource.prlimit(controller.process.pid, resource.RLIMIT_FSIZE, (1, 1))
    watch = patience.Stopwatch()
    answer = tenant.place(10, 'b', status='neutral')
    assert watch.seconds() < BOUND_S
    assert 'database' in answer['why']
    assert tenant.coflow()['state'] == 'planned'
    health = requests.get(controller.url + '/health',
                          timeout=harness.DEADLINE_S)
    assert health.json()['parts']['scheduler']


def test_a_lost_database_is_reported(make):
    controller = make()
    tenant = controller.tenant()
    tenant.place(0)
    for path in controller.home.glob('virtco.sqlite*'):
        # In place: a mapped file cut short is a SIGBUS for SQLite, whoever
        # uses it, and tells nothing of the controller.
        with path.open('r+b') as file:
            file.write(b'\xff' * max(path.stat().st_size, 4096))
    watch = patience.Stopwatch()
    tenant.place(1, 'b', status='neutral')
    assert watch.seconds() < BOUND_S
    patience.wait_for(lambda: controller.call(
        'GET', '/health', status=None)['parts']['database'] is False,
        'a database that is away')
    controller.call('GET', '/health', status=503)


def test_a_removed_database_is_no_place_to_write_to(make):
    """SQLite would go on, and lose it all with the process."""
    controller = make()
    tenant = controller.tenant()
    host = tenant.place(0)['host']
    for path in controller.home.glob('virtco.sqlite*'):
        path.rename(path.with_name('moved-' + path.name))
    answer = tenant.place(1, 'b', status='neutral')
    assert 'was removed or replaced' in answer['why']
    patience.wait_for(lambda: controller.call(
        'GET', '/health', status=None)['parts']['database'] is False,
        'a database that is away')
    # What was answered is where it was moved to.
    controller.stop(signal.SIGKILL)
    for path in controller.home.glob('moved-*'):
        path.rename(path.with_name(path.name.removeprefix('moved-')))
    controller.start()
    assert tenant.stored(0)['host'] == host


def test_a_directory_that_cannot_be_is_one_line_and_exit_code_1(make):
    controller = make({'controller': {'state_dir': '/proc/none'}},
                      wait=False, name='nowhere')
    assert controller.wait_end() == 1
    assert '/proc/none' in controller.log_text()
    assert 'Traceback' not in controller.log_text()


def test_a_damaged_database_at_start_is_one_line_and_exit_code_1(make):
    controller = make(wait=False, name='damaged')
    controller.stop(signal.SIGKILL)
    controller.database.write_bytes(b'no database' * 1000)
    controller.start(wait=False)
    assert controller.wait_end() == 1
    text = controller.log_text()
    assert 'cannot start' in text
    assert 'file is not a database' in text
    assert 'Traceback' not in text


def test_a_taken_port_is_one_line_and_exit_code_1(make, shared):
    port = shared.url.rpartition(':')[2]
    controller = make({'api': {'port': port}}, wait=False, name='second')
    assert controller.wait_end() == 1
    assert 'cannot start' in controller.log_text()


def test_what_is_answered_late_is_not_committed(make):
    """The database comes back after the answer, and gets nothing of it."""
    # Long enough for the first one on a machine that stands still for seconds.
    controller = make({'placement': {'deadline_s': 8},
                       'controller': {'db_timeout_s': 30}})
    tenant = controller.tenant()
    tenant.place(0)
    with locked(controller.database):
        answer = tenant.place(10, 'late', status='neutral')
        assert answer['why'].startswith('no plan in time: commit took')
        assert answer['slow_phase'] == 'commit'
    harness.wait_for(lambda: controller.metrics()[
        'virtco_placements_under_way'] == 0)
    metrics = controller.metrics()
    assert metrics['virtco_late_placements_total{phase="commit"}'] == 1
    assert stored(controller, 'SELECT name FROM groups') == [('a',)]
    assert len(stored(controller, 'SELECT * FROM placements')) == 1
    # What became of it can be read.
    (event,) = harness.wait_for(tenant.events, 'the event')
    assert (event['kind'], event['group_name'], event['detail']) == (
        'neutral', 'late', answer['why'])
    found = tenant.stored(10)
    assert (found['status'], found['why'], found['host']) == (
        'neutral', answer['why'], None)


def test_the_search_for_a_client_that_is_gone_ends(make):
    """Long before its budget, and nothing is reserved."""
    controller = make({'placement': {'budget_s': 60, 'deadline_s': 120}})
    random = np.random.default_rng(3)
    sizes = random.integers(1, 10 ** 9, (30, 30)) * (
        random.random((30, 30)) < 0.3)
    np.fill_diagonal(sizes, 0)
    body = json.dumps(harness.placement(
        0, matrix=json.dumps(sizes.tolist()), num_instances=30,
        project_id='p', hosts=dict.fromkeys(map(str, range(40)), 2)))

    def under_way():
        return controller.metrics()['virtco_placements_under_way']

    with socket.create_connection(
            ('127.0.0.1', int(controller.url.rpartition(':')[2]))) as client:
        client.sendall(
            f'PUT /v1/placements/{uuid.uuid4()} HTTP/1.1\r\nHost: h\r\n'
            'Content-Type: application/json\r\n'
            f'Content-Length: {len(body)}\r\n\r\n{body}'.encode())
        harness.wait_for(under_way, 'the search')
    watch = patience.Stopwatch()
    harness.wait_for(lambda: not under_way(), 'its end')
    assert watch.seconds() < 20
    assert 'the client is gone' in controller.log_text()
    assert controller.tenant().coflows() == []
