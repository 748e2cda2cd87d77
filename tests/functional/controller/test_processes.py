# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Several processes over one database: who leads, and who is refused."""

import contextlib
import signal
import socket
import sqlite3

import pytest

from tests.functional.controller import harness
from tests import patience
from virtco.distribute import frames

MATRIX = '[[0, 0, 1e9, 1e9], [0, 0, 1e9, 1e9], [0, 0, 0, 0], [0, 0, 0, 0]]'


class Edge:
    """An edge module's end of a connection."""

    def __init__(self, port, host, epoch=0, generation=0):
        self.host = host
        self.epoch, self.generation = epoch, generation
        self.refused = None
        self._sock = socket.create_connection(('127.0.0.1', port), 60)
        self._sock.settimeout(0.5)
        self._reader = frames.Reader(1 << 28)
        self.say('hello', versions=[1, 1], host=host, epoch=epoch,
                 generation=generation)

    def say(self, kind, **fields):
        self._sock.sendall(frames.pack(kind, **fields))

    def report(self, tenant, vms=()):
        self.say('report', report={
            'boot_id': 'b', 'epoch': 'e', 'applied_generation':
            self.generation, 'link': {'dev': 'eth0', 'egress_bps': 1e8,
                                      'ingress_bps': 1e8},
            'ports': [{'vm': tenant.instance(n), 'dev': f'tap{n}',
                       'mac': '02:00:00:00:00:01', 'ips': [f'10.1.0.{n}']}
                      for n in vms],
            'coflows': [], 'pairs': [], 'uplink_sent_bytes': 0,
            'default_sent_bytes': 0, 'health': 'ok', 'error': None,
            'cpu_s': 0.1})

    def hear(self):
        """What came meanwhile; False when the connection is over."""
        try:
            data = self._sock.recv(1 << 20)
        except TimeoutError:
            return True
        except OSError:
            return False
        for payload in self._reader.feed(data):
            message = frames.unpack(payload)
            if message['type'] == 'policy':
                found = message['epoch'], message['generation']
                assert found > (self.epoch, self.generation)
                self.epoch, self.generation = found
                self.policy = message['policy']
            elif message['type'] == 'refused':
                self.refused = message['why']
        return bool(data)

    def wait_policy(self, epoch, generation=0):
        def came():
            assert self.hear(), self.refused
            return (self.epoch >= epoch
                    and self.generation > generation)
        patience.wait_for(came, f'a policy of epoch {epoch}')

    def close(self):
        self._sock.close()


class Cloud:
    """Processes with one database."""

    def __init__(self, home):
        self._home = home
        self._started = []

    def start(self, program, name=None, wait=True, **options):
        home = self._home / (name or program)
        home.mkdir(exist_ok=True)
        found = harness.ControllerProcess(home, {
            'database': {'connection': f'sqlite:///{self._home}/db'},
            'monitoring': {'scheduler_port': 0, 'distributor_port': 0},
            'leadership': {'lease_s': 3}, **options}, program=program)
        self._started.append(found)
        return found.start(wait)

    def halt(self, process):
        """Let it stand still, but not while it writes: nobody else can write
        to an SQLite database then.
        """
        def halted():
            process.process.send_signal(signal.SIGSTOP)
            with contextlib.closing(sqlite3.connect(
                    self._home / 'db', timeout=0.2)) as connection:
                try:
                    connection.execute('BEGIN IMMEDIATE')
                    return True
                except sqlite3.OperationalError:
                    process.process.send_signal(signal.SIGCONT)
        patience.wait_for(halted, 'a moment without a write')

    def stop(self):
        for one in self._started:
            with contextlib.suppress(ProcessLookupError):
                one.process.send_signal(signal.SIGCONT)
            one.stop(signal.SIGKILL)


@pytest.fixture
def cloud(tmp_path):
    found = Cloud(tmp_path)
    yield found
    found.stop()


def leader_of(process):
    return process.call('GET', '/health', status=None).get('leader')


def wait_leader(process, epoch):
    """Seconds until this process leads with that epoch or a later one."""
    watch = patience.Stopwatch()
    patience.wait_for(
        lambda: (found := leader_of(process)) and found['here']
        and found['epoch'] >= epoch, f'epoch {epoch}', log=process.log)
    return watch.seconds()


def edge_port(process):
    return int(process.find_in_log(r'may connect to port (\d+)'))


def test_parts_apart_and_a_leader_that_is_killed(cloud):
    """API, two schedulers and a distributor; kill -9 of the one that leads."""
    first = cloud.start('scheduler', 'first')
    assert leader_of(first)['here']
    second = cloud.start('scheduler', 'second')
    assert not leader_of(second)['here']
    distributor = cloud.start('distributor')
    api = cloud.start('api')
    tenant = api.tenant()
    hosts = tenant.launch(4, matrix=MATRIX)
    edge = Edge(edge_port(distributor), tenant.host(hosts[0]))
    edge.report(tenant, [n for n, at in enumerate(hosts) if at == hosts[0]])
    edge.wait_policy(1)
    before = edge.generation
    first.stop(signal.SIGKILL)
    assert wait_leader(second, 2) < 5
    edge.wait_policy(2, before)
    assert edge.epoch == 2
    # Nothing is lost, and the API finds the new one.
    assert [c['state'] for c in tenant.coflows()] == ['active']
    patience.wait_for(lambda: leader_of(api)['reached']
                      and leader_of(api)['epoch'] == 2, 'the new leader')
    before = edge.generation
    api.call('PATCH', '/v1/settings', {'ceil': 'link'})
    edge.wait_policy(2, before)
    edge.close()


def test_a_leader_that_stood_still_is_refused(cloud):
    """By the database, and by edges that heard of the next one."""
    first = cloud.start('controller', 'first')
    second = cloud.start('controller', 'second')
    assert leader_of(first)['here'] and not leader_of(second)['here']
    tenant = second.tenant()
    edge = Edge(edge_port(second), tenant.host('h1'))
    edge.report(tenant)
    edge.wait_policy(1)
    cloud.halt(first)
    wait_leader(second, 2)
    edge.wait_policy(2)
    first.process.send_signal(signal.SIGCONT)
    # It finds itself deposed, and begins anew as one that stands by.
    first.find_in_log('Epoch 1 is over, another scheduler leads')
    first.wait_begun_anew()
    assert not leader_of(first)['here']
    assert leader_of(second)['here']
    # Through it edges hear of the one that leads.
    patience.wait_for(lambda: leader_of(first)['reached'], 'its leader')
    other = Edge(edge_port(first), tenant.host('h2'), epoch=edge.epoch)
    other.report(tenant)
    other.wait_policy(2)
    with contextlib.closing(Edge(edge_port(first), 'h3', epoch=9)) as ahead:
        patience.wait_for(lambda: not ahead.hear(), 'the end')
        assert 'epoch: 9' in ahead.refused


def test_a_leader_that_ends_in_order_is_followed_at_once(cloud):
    first = cloud.start('scheduler', 'first')
    second = cloud.start('scheduler', 'second')
    assert first.stop() == 0
    assert wait_leader(second, 2) < 3
