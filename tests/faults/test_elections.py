# SPDX-License-Identifier: Apache-2.0

"""Elections over the databases and lock services that clouds have."""

import contextlib
import os
import signal
import time

import pytest

from tests import patience
from tests.functional.controller import processes
from virtco_lab import services

IS_FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
LOCKS = {'etcd': services.Etcd, 'redis': services.Redis}
SHORT = (
    ('postgresql', 'etcd'),
    pytest.param(('mariadb', None), marks=pytest.mark.full(
        reason='as with etcd',
        still='the election with etcd; test_processes has those with the '
              'lock in the database, on SQLite')))
FULL = (*SHORT, ('postgresql', None), ('mariadb', 'etcd'),
        ('mariadb', 'redis'), ('postgresql', 'redis'))


@pytest.fixture(scope='module')
def lock_services():
    with contextlib.ExitStack() as stack:
        started = {}

        def url_of(kind):
            if kind is None:
                return None
            if kind not in started:
                made = LOCKS[kind]()
                if made.is_missing():
                    assert not os.environ.get('CI'), made.package
                    pytest.skip(f'Debian package {made.package} is missing')
                started[kind] = stack.enter_context(made)
            return started[kind]

        yield url_of


@pytest.fixture(params=FULL if IS_FULL else SHORT,
                ids=lambda found: '-'.join(filter(None, found)))
def service(request, lock_services):
    return lock_services(request.param[1])


@pytest.fixture
def cloud(request, service, databases, tmp_path):
    kind, _ = request.node.callspec.params['service']
    found = processes.Cloud(tmp_path, databases.make_current(kind, tmp_path),
                            None if service is None else service.url)
    yield found
    found.stop()


def test_leaders_that_stand_still_and_die(cloud, service):
    """The first stands still and comes back, the second is killed."""
    first = cloud.start('controller', 'first')
    second = cloud.start('controller', 'second')
    assert processes.leader_of(first)['here']
    assert not processes.leader_of(second)['here']
    tenant = second.tenant()
    hosts = tenant.launch(4, matrix=processes.MATRIX)
    vms = [n for n, at in enumerate(hosts) if at == hosts[0]]
    edge = processes.Edge(processes.edge_port(first), tenant.host(hosts[0]))
    edge.report(tenant, vms)
    edge.wait_policy(1)

    first.process.send_signal(signal.SIGSTOP)
    print(f'stood still: {processes.wait_leader(second, 2):.1f} s')
    edge = processes.Edge(processes.edge_port(second), edge.host, edge.epoch,
                          edge.generation)
    edge.report(tenant, vms)
    edge.wait_policy(2)
    first.process.send_signal(signal.SIGCONT)
    first.wait_begun_anew()
    patience.wait_for(lambda: processes.leader_of(first)['reached'],
                      'its leader', log=first.log)
    assert not processes.leader_of(first)['here']
    assert processes.leader_of(second)['here']

    if service is not None:
        # The lock service ends and comes back: nobody notices.
        service.kill()
        second.find_in_log('The lock service .* does not work')
        service.start()
        assert processes.leader_of(second)['here']
    second.stop(signal.SIGKILL)
    killed_s = processes.wait_leader(first, 3)
    print(f'killed: {killed_s:.1f} s')
    assert killed_s < 5
    other = processes.Edge(processes.edge_port(first), edge.host, edge.epoch,
                           edge.generation)
    other.report(tenant, vms)
    other.wait_policy(3, edge.generation)
    first_tenant = first.tenant()
    first_tenant.project, first_tenant.number = tenant.project, tenant.number
    patience.wait_for(lambda: [c['state'] for c in first_tenant.coflows()]
                      == ['active'], 'what was reported')
    for one in (edge, other):
        one.close()


@pytest.mark.skipif(not IS_FULL, reason='the unit test of the lock has it')
def test_a_lock_service_that_stands_still_deposes_nobody(cloud, service):
    if service is None:
        pytest.skip('the lock is in the database')
    first = cloud.start('scheduler', 'first')
    second = cloud.start('scheduler', 'second')
    service.process.send_signal(signal.SIGSTOP)
    try:
        second.find_in_log('The lock service .* does not work')
        over_s = time.monotonic() + 4
        patience.wait_for(lambda: time.monotonic() > over_s, 'a lease')
        assert processes.leader_of(first) == {
            'epoch': 1, 'here': True, 'reached': True}
    finally:
        service.process.send_signal(signal.SIGCONT)
    assert not processes.leader_of(second)['here']
