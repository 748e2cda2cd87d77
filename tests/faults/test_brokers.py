# SPDX-License-Identifier: Apache-2.0

"""kill -9 of etcd and of RabbitMQ while VMs are launched and followed."""

import collections
import contextlib
import dataclasses
import os
import random
import threading

import pytest

from tests import patience
from tests.faults import history
from tests.faults import nova as fake_nova
from tests.faults import test_kills
from tests.functional.controller import harness
from tests.functional.controller import processes
from tests.functional.controller import test_notifications as notifications
from virtco_lab import services

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
N_LAUNCHES = 600 if FULL else 40
MOST_KILLS = 20 if FULL else 2
CAPACITIES = {f'h{i}': 6 for i in range(12)}
DEADLINE_S = 5


class Nova(fake_nova.Nova):
    """Sends to a real bus, and again what was not taken.

    :param send: as :func:`notifications.sending` gives it.
    """

    def __init__(self, send, *args, **kwargs):
        self._send = send
        self._sending = threading.Lock()
        super().__init__(*args, **kwargs)

    def notify(self, event_type, vm, host=None):
        with self._sending:
            self._send(event_type, vm, host=host, instance_uuid=vm)


@pytest.fixture
def servers():
    found = services.Etcd, services.RabbitMQ
    for one in found:
        if one.is_missing():
            pytest.skip(f'Debian package {one.package} is missing')
    pytest.importorskip('etcd3gw')
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(one()) for one in found]


@pytest.mark.full(
    reason='it takes 40 s of processor time and two minutes',
    still='leaders that stand still and die with etcd in test_elections, '
    'notifications that are lost in functional/nova/test_asking_nova')
@pytest.mark.parametrize('kind', ('sqlite', 'mariadb'))
def test_etcd_and_rabbitmq_are_killed(kind, servers, databases, tmp_path):
    etcd, rabbitmq = servers
    connection = databases.make_current(kind, tmp_path)
    history.record(connection)
    options = {
        'database': {'connection': connection},
        'controller': {'db_timeout_s': 2},
        # Longer than a busy machine stands still: nobody is to be deposed.
        'leadership': {'backend_url': etcd.url, 'lease_s': 15},
        'notifications': {'transport_url': rabbitmq.url},
        'placement': {'deadline_s': DEADLINE_S, 'budget_s': 0.05}}
    with contextlib.ExitStack() as stack:
        controllers = []
        for name in ('first', 'second'):
            (tmp_path / name).mkdir()
            controllers.append(harness.ControllerProcess(
                tmp_path / name, options))
            stack.callback(controllers[-1].stop, 9)
            controllers[-1].start()
        first = controllers[0]
        assert processes.leader_of(first)['here']
        nova = stack.enter_context(contextlib.closing(Nova(
            stack.enter_context(notifications.sending(rabbitmq.url, -1)),
            first.url, CAPACITIES)))
        killed = _kill_while_launching(servers, nova)
        _judge(nova, connection, killed, test_kills.Plain(first))
        # A lock service that is away deposes nobody.
        assert processes.leader_of(first) == {
            'epoch': 1, 'here': True, 'reached': True}
        assert not processes.leader_of(controllers[1])['here']


def _kill_while_launching(servers, nova):
    errors, killed = [], collections.Counter()

    def launch():
        try:
            fake_nova.drive(nova, N_LAUNCHES, 4)
        except BaseException as error:
            errors.append(error)
            raise

    thread = threading.Thread(target=launch)
    thread.start()
    rng = random.Random(1)
    wait = patience.Patience('the end of the launches', 600)
    while thread.is_alive():
        wait.pause(0.5 + rng.random())
        if sum(killed.values()) < MOST_KILLS:
            server = servers[sum(killed.values()) % 2]
            server.kill()
            wait.pause(rng.random())
            server.start()
            killed[type(server).__name__] += 1
    assert not errors, errors
    return killed


def _judge(nova, connection, killed, tenant):
    def differing():
        final = history.final(history.read(connection))
        return {vm: found for vm, found in final.items()
                if found != ((nova.claims[vm], 'running')
                             if vm in nova.claims else None)}

    print(f'killed {dict(killed)}; {dict(nova.counts)}; slowest answer '
          f'{nova.slowest_s:.1f} s')
    with contextlib.suppress(AssertionError):
        patience.wait_for(lambda: not differing(), 'all notifications', 15)
    lost = differing()
    # A broker that is killed forgets what it has not delivered. Ports tell
    # of those that run where they were planned. The others and who was
    # deleted are found by asking Nova: no host moves a VM's row to itself.
    def is_told():
        # Again and again, as edge modules do: a database may be busy.
        for host in CAPACITIES:
            harness.Edge(tenant, host).report(ports=[
                {'vm': vm, 'dev': f'tap{vm[:8]}', 'mac': '02:00:00:00:00:01',
                 'ips': []} for vm, at in nova.claims.items() if at == host])
        return not [
            vm for vm, (host, state) in differing().items()
            if vm in nova.claims
            and (state, host != nova.claims[vm]) != ('reserved', True)]

    patience.wait_for(is_told, 'what ports tell')
    print(f'{len(lost)} notifications were lost; {len(differing())} VMs are '
          'for Nova to tell of, the others were found by their ports')
    assert nova.counts['planned'] > 0
    # Nova gives away the room of a VM whose deletion nobody heard of. Its row
    # takes none, nor what was planned for it before.
    heard = [dataclasses.replace(change, host=None)
             if change.instance_uuid in lost else change
             for change in history.read(connection)]
    assert [one for one in history.overbooked(heard, CAPACITIES)
            if not one.is_novas] == []
    # At last, as a machine that is overloaded may be late.
    assert nova.slowest_s < DEADLINE_S + 1
