# SPDX-License-Identifier: Apache-2.0

"""A real controller and real edge modules around one coflow."""

import json
import pathlib
import time

import requests

from tests.functional.controller import harness
from tests.netns.edge import bed as beds
from tests.netns.edge import floods
from tests.netns.edge import process

#: Address of the hypervisor where the coflow arrives.
HOST_IP = '192.168.9.2'
_ADDRESS, _PORT = '192.168.9.100', 8791
_LONG = '[[0, 1e12], [0, 0]]'


class Cloud:
    """h1 sends a coflow to h2, whose port does not push back.

    :param senders: number of VMs on the other hypervisors, h3 and h4, that
        are in no coflow.
    """

    def __init__(self, directory, link_bps, senders, report_interval_s=1.0):
        self.bed = beds.Bed(4)
        self.edges = []
        self.controller = None
        try:
            self._build(pathlib.Path(directory), link_bps, senders,
                        report_interval_s)
        except BaseException:
            self.close()
            raise

    def _build(self, directory, link_bps, senders, report_interval_s):
        bed = self.bed
        floods.count_like_ethernet(bed, 'h2', link_bps)
        floods.address_hosts(bed)
        beds.run('ip', 'link', 'set', 'dev', 'lo', 'up', netns=bed.core)
        beds.run('ip', 'addr', 'add', f'{_ADDRESS}/24', 'dev', 'brc',
                 netns=bed.core)
        self.member, self.sink, self.other_sink = map(
            bed.add_vm, ('h1', 'h2', 'h2'))
        self.hostile = [bed.add_vm(f'h{3 + number % 2}')
                        for number in range(senders)]
        (directory / 'controller').mkdir()
        self.controller = harness.ControllerProcess(
            directory / 'controller',
            {'api': {'host': _ADDRESS, 'port': _PORT},
             'scheduler': {'beta': 0}},
            ('ip', 'netns', 'exec', bed.core))
        self.controller.start(wait=False)
        beds.wait_for(self._is_ready, 60, 'the controller')
        for host in bed.hosts:
            home = directory / host
            home.mkdir()
            self.edges.append(process.EdgeProcess(
                bed, host, home, link_bps, link_margin=0.02,
                controller_url=f'http://{_ADDRESS}:{_PORT}',
                report_interval_s=report_interval_s).start())

    def call(self, method, path, body=None):
        def call():
            answer = requests.request(
                method, f'http://{_ADDRESS}:{_PORT}{path}', json=body,
                timeout=30)
            answer.raise_for_status()
            return answer.json()
        return beds.in_netns(self.bed.core, call)

    def _is_ready(self):
        assert self.controller.process.poll() is None, (
            self.controller.log.read_text())
        try:
            return self.call('GET', '/health')
        except requests.RequestException:
            return None

    def route_to_hosts(self, vm):
        """Let a VM send to the hypervisors themselves."""
        beds.run('ip', 'route', 'replace', '192.168.9.0/24', 'dev', 'eth0',
                 netns=vm.netns)

    def know(self, vm, is_known=True):
        """Let the edge module of its host know of a VM, or no longer."""
        if is_known:
            self.bed.unknown.discard(vm)
        else:
            self.bed.unknown.add(vm)
        self.edges[self.bed.hosts.index(vm.host)].update_ports()
        time.sleep(2)

    def start_coflow(self):
        """Its VMs run from now on; when its sender has a class for it."""
        self.place('a', (self.member, self.sink), _LONG)
        started_s = time.monotonic()
        beds.wait_for(lambda: any(
            coflow['state'] == 'active'
            for coflow in self.call('GET', '/v1/coflows')['coflows']), 20,
            'a coflow')
        beds.wait_for(self._has_class, 20, 'its class')
        return time.monotonic() - started_s

    def _has_class(self):
        try:
            return self.policy('h1')['classes']
        except requests.HTTPError as error:
            # No policy of the host was published yet.
            if error.response.status_code != 404:
                raise
            return None

    def is_classified(self):
        """Whether packets of the coflow's sender get into its class."""
        sender = self.edges[self.bed.hosts.index('h1')]
        return self.member.ip in sender.classified()

    def place(self, name, vms, matrix=None, project='p', **hints):
        """Launch a group of VMs that stand already.

        :param hints: without their prefix.
        """
        for number, vm in enumerate(vms):
            body = harness.placement(
                number, name, matrix, hosts={vm.host: 2},
                num_instances=len(vms),
                hints={f'virtco:{key}': value
                       for key, value in hints.items()})
            self.call('PUT', f'/v1/placements/{vm.uuid}',
                      body | {'project_id': project})

    def policy(self, host):
        return self.call('GET', f'/v1/hosts/{host}/policy')

    def promised_bps(self):
        return sum(item['rate_bps']
                   for item in self.policy('h1')['classes'])

    def arrived_bytes(self):
        """On the wire of h2's link since the beginning."""
        shown, = json.loads(beds.run('ip', '-s', '-j', 'link', 'show', 'dev',
                                     'ch2', netns=self.bed.core))
        sent = shown['stats64']['tx']
        return sent['bytes'] + 24 * sent['packets']

    def close(self):
        for edge in self.edges:
            edge.stop()
        if self.controller is not None:
            self.controller.stop()
        self.bed.close()
