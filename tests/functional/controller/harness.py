# SPDX-License-Identifier: Apache-2.0

"""A real virtco-controller process, and pretended edges to report to it."""

import contextlib
import itertools
import json
import pathlib
import re
import secrets
import signal
import subprocess
import sys
import time
import uuid

import requests

from tests import answers
from tests import forks
from tests import patience
from tests.functional.controller import stream

# Of one read of an answer; what is slow is no failure, see ``patience``.
DEADLINE_S = 600
#: Of the policy of a host that reported just now: a process may stand still.
POLICY_S = 20
MATRIX = '{"pattern": "shuffle", "senders": 2, "receivers": 2, "size": "1GB"}'
#: Of controllers whose tests do not wait.
CONSTANTS = {'virtco.state.state.FLUSH_S': 0.1,
             'virtco.follow.follow.REAP_S': 0.2}

wait_for = patience.wait_for


class ControllerProcess:
    """virtco-controller with a database of its own on loopback.

    :param options: lines of configuration, ``{section: {name: value}}``.
    :param constants: of modules, by name, instead of the product's.
    :param wrapper: a command before its own; it then starts by exec.
    :param is_exec: start as installed, not by a fork of a warm process: for
        tests of the start itself.
    """

    def __init__(self, home, options=None, wrapper=(), program='controller',
                 is_exec=False, constants=None):
        self.home = pathlib.Path(home)
        self.config = self.home / 'virtco.conf'
        self.log = self.home / 'log'
        self.database = self.home / 'virtco.sqlite'
        # All edges of a test are on one address.
        self.options = {'api': {'port': 0}, 'distributor': {
            'port': 0, 'max_connections_per_address': 10_000}, 'controller': {
            'state_dir': self.home, 'db_timeout_s': 2},
            'monitoring': {'names': True},
            # Patient, because the machine that runs the tests may be busy.
            'placement': {'deadline_s': 50}}
        for section, values in (options or {}).items():
            self.options.setdefault(section, {}).update(values)
        self.constants = dict(CONSTANTS, **(constants or {}))
        self.wrapper = list(wrapper)
        self.is_exec = is_exec or bool(wrapper)
        self.program = program
        self.process = None
        self.url = None
        self.streams = stream.Streams(self)

    def start(self, wait=True):
        self.config.write_text(''.join(
            f'[{section}]\n' + ''.join(f'{name} = {value}\n'
                                       for name, value in values.items())
            for section, values in self.options.items()))
        self.log.write_text('')
        popen = subprocess.Popen if self.is_exec else forks.Popen
        with self.log.open('ab') as log:
            self.process = popen(
                [*self.wrapper, sys.executable, '-m', 'tests.constants',
                 json.dumps(self.constants), f'virtco.cmd.{self.program}',
                 '--config-file', str(self.config)], stdout=log, stderr=log)
        if wait:
            self.wait_port()
            self.wait_ready()
        return self

    def wait_port(self):
        port = wait_for(self._port, 'the port', log=self.log)
        self.url = f'http://127.0.0.1:{port}'

    def wait_ready(self):
        wait_for(lambda: self._port() and requests.get(
            self.url + '/health', timeout=DEADLINE_S).ok,
            'the end of the start', log=self.log)

    def tenant(self):
        return Tenant(self)

    def metrics(self):
        text = requests.get(self.url + '/metrics', timeout=DEADLINE_S).text
        return {name: float(value) for name, value in (
            line.rsplit(' ', 1) for line in text.splitlines()
            if not line.startswith('#'))}

    def _port(self):
        assert self.process.poll() is None, self.log.read_text()
        # The last one: it may have begun anew.
        found = re.findall(r'Listening on .*, port (\d+)',
                           self.log.read_text())
        return found[-1] if found else None

    def stream_port(self):
        """Where edge modules connect to."""
        servers = self.call('GET', '/v1/distributor')['servers']
        return servers[0]['port']

    def find_in_log(self, pattern):
        """The last match's group, or all of it, once there is one."""
        return wait_for(lambda: re.findall(pattern, self.log.read_text()),
                        pattern, log=self.log)[-1]

    def wait_begun_anew(self):
        """Its process goes on with nothing of what it knew."""
        wait_for(lambda: re.search(r'Beginning anew(?s:.)*Listening on',
                                   self.log.read_text()),
                 'the next start', log=self.log)
        self.wait_port()
        self.wait_ready()

    def stop(self, number=signal.SIGTERM):
        self.streams.close()
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)
            return self.wait_end()
        return None

    def wait_end(self):
        """Exit code."""
        return patience.wait_end(self.process, 'the end of the controller',
                                 log=self.log)

    def call(self, method, path, body=None, status=200, **kwargs):
        response = requests.request(method, self.url + path, json=body,
                                    timeout=DEADLINE_S, **kwargs)
        assert status in (None, response.status_code), response.text
        answers.check(method, path, response.status_code, response.content)
        return response.json() if response.content else None

    def log_text(self):
        return self.log.read_text()


class Tenant:
    """One test's own project, hosts and instances on a shared controller.

    Numbers name instances, ``h0``, ``h1``, … hosts; both are this tenant's.
    """

    # Unlike those of other runs over the same database, and all long, as
    # tables cut long names.
    _numbers = itertools.count(2 ** 39 + secrets.randbelow(2 ** 39))

    def __init__(self, controller):
        self.controller = controller
        self.number = next(self._numbers)
        self.project = f'project-{self.number}'
        self.call = controller.call

    def instance(self, number):
        return str(uuid.UUID(int=(self.number << 32) + number))

    def host(self, name):
        return f'{name}.{self.number}'

    def name(self, host):
        return host and host.partition('.')[0]

    def place(self, number, name='a', matrix=MATRIX, status='planned',
              **changes):
        body = placement(number, name, matrix, **changes)
        body.setdefault('project_id', self.project)
        for offer in body['hosts']:
            offer['host'] = offer['node'] = self.host(offer['host'])
        group = body['server_group']
        if group is not None:
            group['members'] = [self.instance(n) for n in group['members']]
            group['hosts'] = [self.host(h) for h in group['hosts']]
        answer = self.call('PUT', f'/v1/placements/{self.instance(number)}',
                           body)
        assert answer['status'] == status, answer
        answer['host'] = self.name(answer['host'])
        for entry in answer['hosts']:
            entry['host'] = self.name(entry['host'])
        return answer

    def stored(self, number, status=200):
        found = self.call('GET', f'/v1/placements/{self.instance(number)}',
                          status=status)
        return found | {name: self.name(found.get(name))
                        for name in ('host', 'host_now')}

    def notify(self, event_type, number, timestamp=None, **data):
        if data.get('host'):
            data['host'] = self.host(data['host'])
        return self.call('POST', '/v1/notifications', {
            'event_type': event_type, 'timestamp': timestamp,
            'payload': {'nova_object.data': {
                'uuid': self.instance(number)} | data}}, 202)['changed']

    def launch(self, n_vms, first=0, **changes):
        """Place and build a group; the hosts by row."""
        hosts = []
        for i in range(n_vms):
            hosts.append(self.place(first + i, launch_index=i,
                                    num_instances=n_vms, **changes)['host'])
            self.notify('instance.create.end', first + i, host=hosts[-1])
        return hosts

    def coflows(self, **params):
        found = self.call('GET', '/v1/coflows', params={
            'project_id': self.project} | params)['coflows']
        for coflow in found:
            coflow['hosts'] = [self.name(h) for h in coflow['hosts']]
        return found

    def coflow(self, name='a'):
        return next(c for c in self.coflows() if c['name'] == name)

    def events(self):
        return self.call('GET', '/v1/events', params={
            'project_id': self.project})['events']

    def edges(self, hosts, **kwargs):
        """One edge per host, with the ports of the group's rows."""
        found = {host: Edge(self, host,
                            [i for i, at in enumerate(hosts) if at == host],
                            **kwargs) for host in sorted(set(hosts))}
        for edge in found.values():
            edge.report()
        return found


def placement(number, name='a', matrix=MATRIX, n_hosts=4, slots=2,
              hosts=None, hints=None, **changes):
    found = {} if name is None else {'virtco:coflow': name}
    if name is not None and matrix is not None:
        found['virtco:tm'] = matrix
    offers = hosts if hosts is not None else {
        f'h{i}': slots for i in range(n_hosts)}
    return {
        'user_id': 'u1',
        'display_name': f'{name}-{number}', 'reservation_id': f'r-{name}',
        'launch_index': number, 'num_instances': 1,
        'hints': found | (hints or {}), 'metadata': {},
        'flavor': {'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1},
        'server_group': None,
        'hosts': [{'host': host, 'node': host,
                   'free': {'vcpus': free,
                            'memory_mb': max(65536, 512 * free),
                            'disk_gb': max(900, free)}}
                  for host, free in offers.items()]} | changes


class Edge:
    """Reports like an edge module, with counters the test sets."""

    def __init__(self, tenant, host, vms=(), link_bps=1e8):
        self.tenant = tenant
        self.name = tenant.host(host)
        self.vms = list(vms)
        self.link_bps = link_bps
        self.epoch = f'epoch-{self.name}'
        self.sent = {}
        self.uplink = 0
        self.generation = 0
        self.backlogs = {}

    def count(self, coflow_id, wire_bytes, dst=None):
        self.uplink += wire_bytes
        counts = self.sent.setdefault(coflow_id, {})
        counts[dst] = counts.get(dst, 0) + wire_bytes

    def report(self, **changes):
        body = {
            'boot_id': 'b', 'epoch': self.epoch,
            'applied_generation': self.generation,
            'link': {'dev': 'uplink0', 'egress_bps': self.link_bps,
                     'ingress_bps': self.link_bps},
            'probe': {'address': '10.0.0.1', 'port': 7472},
            'ports': [{'vm': self.tenant.instance(n), 'dev': f'tap{n}',
                       'mac': '02:00:00:00:00:01', 'ips': [f'10.1.0.{n}']}
                      for n in self.vms],
            'coflows': [{'coflow_id': name, 'sent_bytes': sum(
                counts.values()), 'drops': 0,
                'backlog_bytes': self.backlogs.get(name, 0),
                'destinations': [
                    {'host': self.tenant.host(dst), 'sent_bytes': value}
                    for dst, value in counts.items() if dst is not None]}
                for name, counts in self.sent.items()],
            'pairs': [], 'uplink_sent_bytes': self.uplink,
            'default_sent_bytes': 0, 'health': 'ok', 'error': None,
            'cpu_s': 0.1} | changes
        self.tenant.controller.streams.report(self.name, body)

    def policy(self, limit_s=POLICY_S):
        """The newest; of a host that reported just now, once there is one."""
        until_s = time.monotonic() + limit_s
        while True:
            response = requests.get(
                f'{self.tenant.controller.url}/v1/hosts/{self.name}/policy',
                timeout=DEADLINE_S)
            if response.status_code == 200:
                return response.json()
            if response.status_code != 404 or time.monotonic() > until_s:
                return None
            time.sleep(0.01)

    def wait_class(self, coflow_id):
        """From then on the controller knows whose bytes are counted."""
        wait_for(lambda: any(
            one['coflow_id'] == coflow_id
            for one in (self.policy() or {'classes': ()})['classes']),
            'a class of the coflow')


@contextlib.contextmanager
def running(home, options=None, **kwargs):
    process = ControllerProcess(home, options, **kwargs)
    try:
        yield process.start()
    finally:
        process.stop(signal.SIGKILL)
