# SPDX-License-Identifier: Apache-2.0

"""An edge module's end of a connection, as tests speak it."""

import re
import select
import socket
import time

import msgspec
import requests

from tests import patience
from tests.unit import made
from virtco.wire import frames

DEADLINE_S = 60


class Stream:
    """One host's connection.

    :ivar refused: why it was ended.
    :ivar leader: where the one that refused it says that the leader is.
    :ivar trains: that it was to send.
    """

    def __init__(self, port, host, epoch=0, generation=0, patience_s=0.5,
                 ticket=''):
        self.host = host
        self.epoch, self.generation = epoch, generation
        self.refused, self.leader = None, ''
        self.trains = []
        self.policy = {}
        self._sock = socket.create_connection(('127.0.0.1', port), 60)
        self._sock.settimeout(patience_s)
        self._reader = frames.Reader(1 << 28)
        self.say('hello', version=frames.VERSION, host=host, epoch=epoch,
                 generation=generation, ticket=ticket)

    def say(self, kind, **fields):
        self._sock.sendall(made.frame(kind, **fields))

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

    def hear(self, wait=True):
        """What came meanwhile; False when the connection is over.

        :param wait: for something to come.
        """
        try:
            if not wait and not select.select([self._sock], [], [], 0)[0]:
                return True
            data = self._sock.recv(1 << 20)
        except TimeoutError:
            return True
        except OSError:
            return False
        for payload in self._reader.feed(data):
            message = msgspec.json.decode(payload)
            if message['type'] == 'policy':
                found = message['epoch'], message['generation']
                assert found > (self.epoch, self.generation)
                self.epoch, self.generation = found
                self.policy = message['policy']
            elif message['type'] == 'probe':
                self.trains.append(message['order'])
            elif message['type'] == 'refused':
                self.refused = message['why']
                self.leader = message.get('leader', '')
        return bool(data)

    def wait_policy(self, epoch, generation=0):
        def came():
            assert self.hear(), self.refused
            return (self.epoch >= epoch
                    and self.generation > generation)
        patience.wait_for(came, f'a policy of epoch {epoch}')

    def wait_refused(self):
        """Why, and where the leader is."""
        patience.wait_for(lambda: not self.hear(), 'the end')
        return self.refused, self.leader

    def close(self):
        self._sock.close()


class Streams:
    """Connections of one process's hosts, and what comes of what they say.

    :param process: the controller.
    """

    def __init__(self, process):
        self._process = process
        self._open = {}

    def of(self, host):
        """The connection of this host, again if it was lost."""
        found = self._open.get(host)
        if (found is not None and found.hear(wait=False)
                and found.refused is None):
            return found
        ports = re.findall(r'may connect to port (\d+)',
                           self._process.log_text())
        self._open[host] = found = Stream(
            int(ports[-1]), host, *(
                (found.epoch, found.generation) if found is not None
                else ()))
        return found

    def report(self, host, body):
        """Until the controller has taken it in."""
        def last():
            found = requests.get(f'{self._process.url}/v1/hosts/{host}',
                                 timeout=DEADLINE_S)
            return found.json()['last_report'] if found.ok else None

        before = last()
        self.of(host).say('report', report=body)
        patience.wait_for(lambda: last() != before, f'the report of {host}',
                          log=self._process.log)

    def measure(self, src, dst, rate_bps, wait=True, **values):
        """
        :param wait: until the controller has taken it in.
        """
        began_s = time.monotonic()
        self.of(src).say('measurement', measurement={
            'probe_id': 'p', 'src': src, 'dst': dst, 'rate_bps': rate_bps,
            **values})

        def is_taken():
            pairs = requests.get(f'{self._process.url}/v1/rates',
                                 timeout=DEADLINE_S).json()['pairs']
            return any((one['src'], one['dst']) == (src, dst)
                       and one['age_s'] < time.monotonic() - began_s
                       for one in pairs)
        if wait:
            patience.wait_for(is_taken, f'the rate from {src} to {dst}',
                              log=self._process.log)

    def trains(self, host):
        """Those that it was to send since this was asked last."""
        found = self.of(host)
        found.hear(wait=False)
        trains, found.trains = found.trains, []
        return trains

    def close(self):
        for one in self._open.values():
            one.close()
        self._open = {}
