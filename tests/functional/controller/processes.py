# SPDX-License-Identifier: Apache-2.0

"""Several processes over one database, and an edge module's connection."""

import contextlib
import signal
import socket
import sqlite3

from tests import patience
from tests.functional.controller import harness
from virtco.distribute import frames

MATRIX = '[[0, 0, 1e9, 1e9], [0, 0, 1e9, 1e9], [0, 0, 0, 0], [0, 0, 0, 0]]'


class Edge:
    """An edge module's end of a connection."""

    def __init__(self, port, host, epoch=0, generation=0, patience_s=0.5):
        self.host = host
        self.epoch, self.generation = epoch, generation
        self.refused = None
        self.trains = []
        self.policy = {}
        self._sock = socket.create_connection(('127.0.0.1', port), 60)
        self._sock.settimeout(patience_s)
        self._reader = frames.Reader(1 << 28)
        self.say('hello', version=2, host=host, epoch=epoch,
                 generation=generation)

    def say(self, kind, **fields):
        self._sock.sendall(frames.pack(kind, **fields))

    def report(self, tenant, vms=(), link_bps=1e8, **changes):
        self.say('report', report={
            'boot_id': 'b', 'epoch': 'e', 'applied_generation':
            self.generation, 'link': {'dev': 'eth0', 'egress_bps': link_bps,
                                      'ingress_bps': link_bps},
            'ports': [{'vm': tenant.instance(n), 'dev': f'tap{n}',
                       'mac': '02:00:00:00:00:01', 'ips': [f'10.1.0.{n}']}
                      for n in vms],
            'coflows': [], 'pairs': [], 'uplink_sent_bytes': 0,
            'default_sent_bytes': 0, 'health': 'ok', 'error': None,
            'cpu_s': 0.1} | changes)

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
            elif message['type'] == 'probe':
                self.trains.append(message['train'])
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
    """Processes with one database.

    :param connection: of the database; None: a new SQLite database.
    :param backend_url: of the lock; None: where the database is.
    """

    def __init__(self, home, connection=None, backend_url=None):
        self._home = home
        self._database = {'connection': connection or f'sqlite:///{home}/db'}
        self._leadership = {'lease_s': 3}
        if backend_url is not None:
            self._leadership['backend_url'] = backend_url
        self._started = []

    def start(self, program, name=None, wait=True, **options):
        home = self._home / (name or program)
        home.mkdir(exist_ok=True)
        found = harness.ControllerProcess(home, {
            'database': self._database, 'leadership': self._leadership,
            'monitoring': {'scheduler_port': 0, 'distributor_port': 0},
            **options}, program=program)
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
