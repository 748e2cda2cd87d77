# SPDX-License-Identifier: Apache-2.0

"""Neutron's QoS rules on ports of a coflow, by the real API.

What each does is a row of the table in doc/source/reference/edge.rst.
"""

import contextlib
import re
import subprocess
import sys

import openstack
import pytest

from tests import patience
from tests.cloud import clients
from virtco_lab.cloud import accounts
from virtco_lab.emulation import namespaces

_SENT_BPS, _LIMIT_KBPS, _FOR_S = 20e6, 5000, 3.0
_RECEIVE = '''
import socket, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
sock.bind(('', 5000))
print('ready', flush=True)
n_bytes, marks = 0, set()
sock.settimeout(60)
while True:
    try:
        data, about, _, _ = sock.recvmsg(2048, 64)
    except TimeoutError:
        break
    sock.settimeout(2)
    n_bytes += len(data)
    marks.add(about[0][2][0])
print(n_bytes, *marks)
'''
_SEND = f'''
import socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.connect((sys.argv[1], 5000))
gap_s = 1400 * 8 / {_SENT_BPS}
began_s = time.monotonic()
for number in range(int({_FOR_S} / gap_s)):
    time.sleep(max(0, began_s + number * gap_s - time.monotonic()))
    sock.send(bytes(1400))
'''


class Pair:
    """A VM that sends a coflow to another one on another hypervisor."""

    def __init__(self, cloud):
        self.cloud = cloud
        clients.run(
            'openstack', 'server', 'create', '--image', 'tiny', '--flavor',
            'slot1', '--network', 'lab', '--min', '3', '--max', '3', '--hint',
            'virtco:coflow=qos', '--hint', 'virtco:tm=[[0, "1GB", "1GB"], '
            '[0, 0, 0], [0, 0, 0]]', '--wait', 'qos')
        servers = self.call(lambda api: sorted(api.compute.servers(
            all_projects=True, name='qos'), key=lambda one: one.name))
        self.src = servers[0]
        # A hypervisor has two slots.
        self.dst = next(one for one in servers
                        if one.compute_host != self.src.compute_host)
        self.ports = self.call(lambda api: {
            server.id: next(api.network.ports(device_id=server.id))
            for server in servers})

    def call(self, function):
        """Call a function with a connection of the SDK."""
        return namespaces.call(self.cloud.control, lambda: function(
            accounts.connect(self.cloud)))

    @contextlib.contextmanager
    def rules(self, server, *rules):
        """Give a VM's port a policy with rules: kind and values each."""
        def make(api):
            policy = api.network.create_qos_policy(name='qos')
            try:
                for kind, values in rules:
                    getattr(api.network, f'create_qos_{kind}_rule')(
                        policy, **values)
                api.network.update_port(port, qos_policy_id=policy.id)
            except openstack.exceptions.SDKException:
                api.network.delete_qos_policy(policy)
                raise
            return policy

        def remove(api):
            api.network.update_port(port, qos_policy_id=None)
            api.network.delete_qos_policy(policy)

        port = self.ports[server.id]
        policy = self.call(make)
        try:
            # Until every chassis has it.
            subprocess.run(
                ['ovn-nbctl', f'--db={self.cloud.ovsdb("nb")}', '--wait=hv',
                 'sync'], check=True)
            yield
        finally:
            self.call(remove)

    def wait_cap(self, server):
        """Wait until the coflow waits at the cap of a VM, or at none."""
        def is_so():
            port = clients.openstack('coflow', 'show', 'qos')['bottleneck']
            return (port or {}).get('capped_vm') == (server and server.id)
        patience.wait_for(is_so, f'a cap of {server and server.name}')

    def tc(self, *words):
        return subprocess.run(
            ['ip', 'netns', 'exec', self.cloud.namespace(
                self.src.compute_host), 'tc', *words, 'class', 'show', 'dev',
             'uplink0'], check=True, text=True, capture_output=True).stdout

    def _classed_bytes(self):
        """Bytes that classes of coflows for one host each counted."""
        return sum(map(int, re.findall(
            r'parent 7000:1[0-9a-f] .*\n Sent (\d+) bytes', self.tc('-s'))))

    def send(self):
        """Send; return rates counted in the class and received, and marks."""
        def python(server, code, *words):
            return subprocess.Popen(
                ['ip', 'netns', 'exec', self.cloud.vm_namespace(server.id),
                 sys.executable, '-c', code, *words], text=True,
                stdout=subprocess.PIPE)

        before = self._classed_bytes()
        with python(self.dst, _RECEIVE) as receiver:
            assert receiver.stdout.readline() == 'ready\n'
            with python(self.src, _SEND,
                        self.ports[self.dst.id].fixed_ips[0]['ip_address']):
                pass
            n_bytes, *marks = map(int, receiver.stdout.read().split())
        return (8 * (self._classed_bytes() - before) / _FOR_S,
                8 * n_bytes / _FOR_S, set(marks))


@pytest.fixture(scope='module')
def pair(cloud):
    if cloud.backend != 'ovn':
        pytest.skip('Neutron has no QoS with this backend')
    made = Pair(cloud)
    yield made
    made.call(lambda api: [
        api.compute.delete_server(server)
        for server in api.compute.servers(all_projects=True, name='qos')])


def _is_all(rate_bps):
    return 0.9 * _SENT_BPS < rate_bps < 1.1 * _SENT_BPS


def _is_limited(rate_bps):
    return 0.5e3 * _LIMIT_KBPS < rate_bps < 1.3e3 * _LIMIT_KBPS


def _limit(direction):
    return 'bandwidth_limit', {
        'max_kbps': _LIMIT_KBPS, 'max_burst_kbps': _LIMIT_KBPS // 10,
        'direction': direction}


def test_without_rules_all_arrives_in_its_class(pair):
    patience.wait_for(lambda: '7000:11' in pair.tc(), 'a class')
    classed_bps, received_bps, marks = pair.send()
    assert _is_all(classed_bps) and _is_all(received_bps) and marks == {0}


def test_an_egress_limit_drops_in_front_of_the_class(pair):
    with pair.rules(pair.src, _limit('egress')):
        classed_bps, received_bps, _ = pair.send()
        assert _is_limited(classed_bps) and _is_limited(received_bps)
        assert 'class htb 1:2 ' not in pair.tc()
        pair.wait_cap(pair.src)
    assert _is_all(pair.send()[1])
    pair.wait_cap(None)


def test_an_ingress_limit_drops_behind_the_class(pair):
    with pair.rules(pair.dst, _limit('ingress')):
        classed_bps, received_bps, _ = pair.send()
        pair.wait_cap(pair.dst)
    assert _is_all(classed_bps) and _is_limited(received_bps)


def test_an_egress_minimum_is_a_queue_beside_the_classes(pair):
    with pair.rules(
            pair.src, ('minimum_bandwidth', {
                'min_kbps': _LIMIT_KBPS, 'direction': 'egress'}),
            ('bandwidth_limit', {'max_kbps': 2 * _LIMIT_KBPS,
                                 'direction': 'egress'})):
        patience.wait_for(lambda: 'rate 5Mbit ceil 10Mbit' in pair.tc(),
                          "the queue's class")
        assert 'class htb 7000:11 ' in pair.tc()
        host, = (row for row in clients.openstack('coflow', 'host', 'list')
                 if row['host'] == pair.src.compute_host)
        assert host['health'] == 'ok'
    patience.wait_for(lambda: 'ceil 10Mbit' not in pair.tc(), 'its end')


@pytest.mark.parametrize('rule', [
    ('minimum_bandwidth', {'min_kbps': 1000, 'direction': 'ingress'}),
    ('dscp_marking', {'dscp_mark': 26})])
def test_what_limits_nothing(pair, rule):
    kind, values = rule
    server = pair.src if kind == 'dscp_marking' else pair.dst
    with pair.rules(server, rule):
        classed_bps, received_bps, marks = pair.send()
    assert _is_all(classed_bps) and _is_all(received_bps)
    assert marks == {values.get('dscp_mark', 0) << 2}


@pytest.mark.parametrize('rule', [
    ('packet_rate_limit', {'max_kpps': 1, 'direction': 'egress'}),
    ('minimum_packet_rate', {'min_kpps': 1, 'direction': 'egress'})])
def test_rules_of_packet_rates_are_refused(pair, rule):
    with pytest.raises(openstack.exceptions.ConflictException), (
            pair.rules(pair.src, rule)):
        pass
