# SPDX-License-Identifier: Apache-2.0

"""The first moments of a controller: in which order it answers what."""

import contextlib
import os
import pathlib
import resource
import socket
import sqlite3
import subprocess
import sys

import requests

from benchmarks import startup
from tests.functional.controller import harness
from tests.functional.controller import test_faults as faults

PATIENT = {'controller': {'db_timeout_s': 60}}
# They tell how fast the machine is.
LIBRARIES = ('scipy.optimize', 'sqlalchemy.orm', 'falcon', 'alembic.command',
             'oslo_config.cfg', 'keystonemiddleware.auth_token')


@contextlib.contextmanager
def held_up(make, home):
    """A first start that gets no further than the database."""
    database = home / 'own' / 'virtco.sqlite'
    database.parent.mkdir()
    sqlite3.connect(database).close()
    with faults.locked(database):
        controller = make(PATIENT, wait=False, is_exec=True)
        controller.wait_port()
        harness.wait_for(lambda: 'reading the database'
                         in controller.log_text())
        yield controller


def health(controller):
    return requests.get(controller.url + '/health',
                        timeout=harness.DEADLINE_S)


def test_the_port_answers_before_anything_else_is_there(make, tmp_path):
    with held_up(make, tmp_path) as controller:
        tenant = controller.tenant()
        answer = health(controller)
        assert answer.status_code == 503
        found = answer.json()
        assert found['status'] == 'starting'
        assert found['what'] == 'reading the database'
        assert found['since'] > 0
        assert found['for_s'] >= 0
        answer = tenant.place(0, status='neutral')
        assert answer['why'] == ('the controller is starting: '
                                 'reading the database')
        assert [entry['host'] for entry in answer['hosts']] == [
            'h0', 'h1', 'h2', 'h3']
        edge = harness.Edge(tenant, 'h0')
        refused = requests.get(f'{controller.url}/v1/hosts/{edge.name}/policy',
                               timeout=harness.DEADLINE_S)
        assert refused.status_code == 503
        assert refused.headers['Retry-After'] == '1'
        assert refused.json()['error']['code'] == 'virtco.starting'
        assert requests.put(f'{controller.url}/v1/placements/x', data='[1',
                            timeout=harness.DEADLINE_S).status_code == 503
    controller.wait_ready()
    assert health(controller).json()['status'] == 'ok'
    assert tenant.place(0)['host']
    log = controller.log_text()
    steps = ['Listening on', 'loading the API', 'reading the database',
             'loading the planner', 'Ready after']
    assert sorted(steps, key=log.index) == steps


def _cpu_s(program):
    def children_s():
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before_s = children_s()
    subprocess.run([sys.executable, '-c', program], check=True)
    return children_s() - before_s


def test_what_a_first_start_may_cost(tmp_path):
    """Processor time, so that other work on the machine counts little, over
    that of loading the libraries.
    """
    cost = startup.measure(tmp_path)
    assert cost.neutral_before_ready
    libraries_cpu_s = _cpu_s('import ' + ', '.join(LIBRARIES))
    assert cost.port_cpu_s <= 0.6 * libraries_cpu_s
    assert cost.port_cpu_s < cost.ready_cpu_s <= 2 * libraries_cpu_s
    assert cost.ready_rss_mb <= 130
    assert cost.in_use_rss_mb <= 175


def test_linear_programming_is_loaded_when_it_is_used(make):
    """A report is the first sign of use; launches come later."""
    controller = make(is_exec=True)

    def has_loaded():
        maps = pathlib.Path(f'/proc/{controller.process.pid}/maps')
        return 'scipy/optimize/' in maps.read_text()

    assert not has_loaded()
    harness.Edge(controller.tenant(), 'h0').report()
    harness.wait_for(has_loaded)


def test_it_ends_at_once_while_it_starts(make, tmp_path):
    with held_up(make, tmp_path) as controller:
        assert controller.stop() == 0


def test_systemd_is_told_when_it_is_ready_and_when_it_stops(
        make, tmp_path, monkeypatch):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.settimeout(harness.DEADLINE_S)
        manager.bind(os.fspath(tmp_path / 'notify'))
        monkeypatch.setenv('NOTIFY_SOCKET', os.fspath(tmp_path / 'notify'))
        controller = make(is_exec=True)
        told = [manager.recv(4096).decode() for _ in range(5)]
        assert told == ['STATUS=Starting: loading the API',
                        'STATUS=Starting: reading the database',
                        'STATUS=Starting: listening to Nova',
                        'STATUS=Starting: loading the planner',
                        'READY=1\nSTATUS=Serving']
        controller.stop()
        assert manager.recv(4096) == b'STOPPING=1'
