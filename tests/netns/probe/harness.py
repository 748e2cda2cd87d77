# SPDX-License-Identifier: Apache-2.0

"""Two hosts joined by a core whose ports can be shaped."""

import contextlib
import json
import multiprocessing
import os
import subprocess
import sys

from pyroute2 import netns

from edge_module.probe import responder
from edge_module.probe import train_protocol as protocol
from edge_module.probe import train_sender as sender
from edge_module.qdisc import wire
from tests import patience
from tests import run_name
from virtco.wire import probe_order

ADDRESSES = {'a': '10.77.0.1', 'b': '10.77.0.2'}
UPLINK = 'uplink0'
KEY = protocol.Key('p', bytes(32))
_SPAWN = multiprocessing.get_context('spawn')


def sh(line, *, text=None):
    subprocess.run(line.split(), check=True, input=text, text=True,
                   capture_output=True)


def script(name):
    """A console script of this installation."""
    return os.path.join(os.path.dirname(sys.executable), name)


def get_json(namespace_path, url):
    """GET from within a namespace; None when nobody answers."""
    done = subprocess.run(
        ['nsenter', f'--net={namespace_path}', sys.executable, '-c',
         'import sys, urllib.request as r;'
         'r.install_opener(r.build_opener(r.ProxyHandler({})));'
         'print(r.urlopen(sys.argv[1], timeout=5).read().decode())', url],
        capture_output=True, text=True)
    return json.loads(done.stdout) if done.returncode == 0 else None


class Net:
    """Namespaces a, b and core; ``uplink0`` of a and b end in the core."""

    def __init__(self):
        self._prefix = run_name.another()

    def name(self, role):
        return f'{self._prefix}-{role}'

    def run(self, role, line, *, text=None):
        sh(f'ip netns exec {self.name(role)} {line}', text=text)

    def build(self):
        for role in ('core', 'a', 'b'):
            sh(f'ip netns add {self.name(role)}')
        self.run('core', 'ip link add name bridge0 type bridge')
        self.run('core', 'ip link set dev bridge0 up')
        for role, address in ADDRESSES.items():
            sh(f'ip link add name to-{role} netns {self.name("core")} '
               f'type veth peer name {UPLINK} netns {self.name(role)}')
            self.run('core', f'ip link set dev to-{role} master bridge0 up')
            self.run(role, f'ip addr add {address}/24 dev {UPLINK}')
            self.run(role, f'ip link set dev {UPLINK} up')
            self.run(role, 'ip link set dev lo up')

    def close(self):
        for role in ('a', 'b', 'core'):
            subprocess.run(['ip', 'netns', 'del', self.name(role)],
                           capture_output=True)

    def shape_htb(self, role, dev, rate, *, burst='1600', queue_bytes=2 ** 20):
        """A link of that rate: an HTB as the edge module's, of one class."""
        root = f'{wire.ROOT_MAJOR:x}:'
        self.run(role, f'tc qdisc add dev {dev} root handle {root} htb '
                       'default 1')
        self.run(role, f'tc class add dev {dev} parent {root} classid {root}1 '
                       f'htb rate {rate} ceil {rate} burst {burst} '
                       f'cburst {burst} quantum 65536')
        self.run(role, f'tc qdisc add dev {dev} parent {root}1 handle 10: '
                       f'bfifo limit {queue_bytes}')

    def shape_tbf(self, role, dev, rate, *, burst):
        self.run(role, f'tc qdisc add dev {dev} root tbf rate {rate} '
                       f'burst {burst} limit {2 ** 20}')

    def filter(self, role, dev, rule):
        """An nft rule for what arrives at a device."""
        self.run(role, 'nft -f -', text=f"""table netdev probe {{
 chain c {{ type filter hook ingress device {dev} priority 0;
  {rule}
 }}
}}
""")

    @contextlib.contextmanager
    def answering(self, role, **changes):
        """A responder in a process of its own, as in the edge module."""
        settings = protocol.Settings(**{
            'timeout_s': 10.0,
            'max_bytes': 64 * 2 ** 20, 'max_trains_per_minute': 1000,
            'uplink_dev': UPLINK, **changes})
        here, there = _SPAWN.Pipe()
        process = _SPAWN.Process(target=_answer, daemon=True,
                                 args=(self.name(role), ADDRESSES[role],
                                       settings, there))
        process.start()
        try:
            patience.wait_for(here.poll, 'the start of the responder')
            yield here.recv()
        finally:
            here.close()
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()

    def measure(self, role, peer, port, *, packets=200, bursts=10, **changes):
        """Send one train from role to peer, in this process."""
        settings = protocol.Settings(**{
            'timeout_s': 10.0, 'max_sending_s': 2.5,
            'max_bytes': 16 * 2 ** 20, 'uplink_dev': UPLINK, **changes})
        train = probe_order.Train(bursts, packets, 1472)
        with self.inside(role):
            return sender.measure(ADDRESSES[peer], port, train, settings,
                                  KEY)

    @contextlib.contextmanager
    def inside(self, role):
        """Move this thread into a namespace and back."""
        with open('/proc/thread-self/ns/net', 'rb') as home:
            netns.setns(self.name(role), flags=0)
            try:
                yield
            finally:
                netns.setns(home.fileno())


def _answer(namespace, address, settings, pipe):
    netns.setns(namespace, flags=0)
    service = responder.Responder(address, 0, settings)
    service.expect(KEY, 3600.0)
    service.start()
    pipe.send(service.port)
    with contextlib.suppress(EOFError):
        pipe.recv()
    service.stop()
