# SPDX-License-Identifier: Apache-2.0

"""A relay that is lost, or that loses the leader, judged meanwhile.

Edge modules' own connections find another way within a lease, a coflow that
is launched meanwhile has its class, and every byte counts once.
"""

import contextlib
import os
import signal
import time

import pytest

from tests import openssl
from tests import patience
from tests.faults import edges
from tests.faults import wire
from tests.functional.controller import processes
from virtco_lab.services import service

FULL = os.environ.get('VIRTCO_FAULTS') == 'full'
LEASE_S = processes.LEASE_S
HOSTS = [f'h{number}' for number in range(4)]
#: What happens to the relay that serves all edge modules.
FAULTS = ('kill', 'halt', 'cut edges', 'hold edges', 'cut leader',
          'hold leader')


class Site:
    """A scheduler, an API, a relay with all edge modules, and maybe another.

    :param relays: how many there are once the edge modules are connected.
    """

    def __init__(self, home, stack, tls, relays):
        self.cloud = cloud = processes.Cloud(home)
        stack.callback(cloud.stop)
        options, ca_file = {}, None
        if tls:
            authority = openssl.Authority(home)
            certificate, key = authority.sign('127.0.0.1')
            ca_file = authority.path
            options = {'distributor': {
                'cert_file': certificate, 'key_file': key,
                'ca_file': ca_file}}
        self.leader = cloud.start('scheduler', **options)
        leads = wire.Wire(processes.edge_port(self.leader))
        self.relay = cloud.start('distributor', 'relay', constants={
            'tests.faults.redirected.PORT': leads.port}, **options)
        self.wires = {'leader': leads, 'edges': wire.Wire(
            processes.edge_port(self.relay))}
        for one in self.wires.values():
            stack.callback(one.close)
        other, = service.free_ports(1)
        options.setdefault('distributor', {})
        api = cloud.start('api', distributor=options['distributor'] | {
            'endpoints': f'127.0.0.1:{self.wires["edges"].port},'
                         f'127.0.0.1:{other}',
            'endpoints_tls': tls})
        self.tenant = api.tenant()
        self.edges = {host: edges.Edge(home, self.tenant.host(host), api.url,
                                       ca_file) for host in HOSTS}
        for edge in self.edges.values():
            stack.callback(edge.close)
            edge.report()
        patience.wait_for(lambda: all(
            edge.generation for edge in self.edges.values()),
            'the first policies', log=self.relay.log)
        if relays == 2:
            options['distributor'] = options['distributor'] | {'port': other}
            cloud.start('distributor', 'other', **options)

    def launch(self, first):
        """A coflow of two VMs: its id, the sender and the receiver."""
        hosts = self.tenant.launch(2, first, name=f'c{first}', slots=1,
                                   matrix='[[0, 1e9], [0, 0]]')
        for number, host in enumerate(hosts, first):
            self.edges[host].add_port(self.tenant.instance(number), number)
            self.edges[host].report()
        coflow_id = self.tenant.coflow(f'c{first}')['id']
        return coflow_id, *(self.edges[host] for host in hosts)

    def break_(self, fault):
        if fault == 'kill':
            self.relay.stop(signal.SIGKILL)
        elif fault == 'halt':
            self.relay.process.send_signal(signal.SIGSTOP)
        else:
            mode, which = fault.split()
            self.wires[which].set(mode)

    def sent_bytes(self, coflow_id):
        return next(one['sent_bytes'] for one in self.tenant.coflows()
                    if one['id'] == coflow_id)


@pytest.fixture(scope='module', autouse=True)
def table():
    rows = []
    yield rows
    print('\nfault        relays  TLS    class after  bytes counted after')
    for row in rows:
        print('{:12} {:6}  {!s:5}  {:9.1f} s  {:17.1f} s'.format(*row))


@pytest.mark.parametrize('fault, relays, tls', [
    (fault, relays, False) for fault in FAULTS for relays in (2, 1)
] + [(fault, 2, True) for fault in ('halt', 'hold leader')] if FULL else [
    ('halt', 2, False), ('hold leader', 1, True)])
def test_a_coflow_has_its_class_meanwhile(tmp_path, table, fault, relays,
                                          tls):
    with contextlib.ExitStack() as stack:
        site = Site(tmp_path, stack, tls, relays)
        running, sender, receiver = site.launch(1)
        patience.wait_for(lambda: sender.has_class(running), 'a class')
        sender.count(running, receiver.host)
        sender.report()
        patience.wait_for(lambda: site.sent_bytes(running) > 0, 'its bytes')
        step_bytes = site.sent_bytes(running)
        site.break_(fault)
        watch = patience.Answer()
        # It is counted while nobody hears it.
        for _ in range(3):
            sender.count(running, receiver.host)
            sender.report()
            time.sleep(0.1)
        launched, sends, _receives = site.launch(3)
        patience.wait_for(lambda: sends.has_class(launched),
                          'a class of the coflow launched meanwhile')
        class_s = watch.seconds()
        patience.wait_for(lambda: site.sent_bytes(running)
                          >= 3.99 * step_bytes, 'all bytes')
        table.append((fault, relays, tls, class_s, watch.seconds()))
        assert site.sent_bytes(running) == pytest.approx(4 * step_bytes,
                                                         rel=1e-6)
        # Two seconds of slack for a busy machine.
        assert class_s < LEASE_S + 1 + 2
