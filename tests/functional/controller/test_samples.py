# SPDX-License-Identifier: Apache-2.0

"""Samples of the API's reference are what a real controller answers.

``python -m tests.functional.controller.test_samples`` records them again and
writes ``doc/source/api/openapi.json``, which shows them.
"""

from concurrent import futures
import contextlib
import http.server
import json
import pathlib
import re
import tempfile
import threading
import time
import urllib.parse
import uuid

import requests

from tests.functional.controller import harness
from virtco.api import openapi
from virtco.api import versions
from virtco.follow import inventory
from virtco.wire import operations

API = pathlib.Path(__file__).parents[3] / 'doc/source/api'
SAMPLES = API / 'samples.json'
HOSTS = ('compute1', 'compute2')
MATRIX = '[[0, "20MB"], [0, 0]]'
BY_NAME = {one.name: one for one in operations.OPERATIONS}
#: Each time since the epoch in a sample.
EPOCH_S = 1_800_000_000.0
#: Fields that no two runs have alike, and their values in a sample.
TIMED = {'age_s': 1.0, 'ages_s': 1.0, 'busy_s': 1.0, 'confidence': 1.0,
         'generations_behind': 1, 'measured_age_s': 1.0, 'phases_s': 0.001,
         'port': 7475, 'seconds': 0.01}
#: Of a coflow, by the time at which it is asked for.
PROGRESS = {'state', 'iteration'}
CONSTANTS = {'virtco.objects.profiles.FLUSH_S': 0.1}
_ID = re.compile(r'\b(?:[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}'
                 r'|[0-9a-f]{16})\b')


class Cloud(harness.Tenant):
    """Tenant with plain names, because it has the controller for itself."""

    def __init__(self, controller):
        super().__init__(controller)
        self.number, self.project = 1, 'analytics'

    def host(self, name):
        return name


class Nova(http.server.BaseHTTPRequestHandler):
    """Nova and placement of empty hosts; servers are not told."""

    def log_message(self, *_args):
        """Quiet."""

    def do_GET(self):
        hosts = {str(uuid.UUID(int=i)): host
                 for i, host in enumerate(self.server.hosts)}
        path = urllib.parse.urlsplit(self.path).path
        self.send_response(503 if path.startswith('/servers') else 200)
        self.end_headers()
        self.wfile.write(json.dumps({
            'hypervisors': [
                {'id': id_, 'state': 'up', 'status': 'enabled',
                 'service': {'host': host}} for id_, host in hosts.items()],
            'provider_summaries': {id_: {'resources': {
                name: {'capacity': capacity, 'used': 0}
                for name, capacity in zip(inventory.CLASSES, (
                    8, 65536, 500), strict=True)}} for id_ in hosts},
        }).encode())


@contextlib.contextmanager
def running(home, hosts=HOSTS, options=None):
    """Run a controller that asks the Nova of these hosts."""
    with http.server.ThreadingHTTPServer(('127.0.0.1', 0), Nova) as nova:
        nova.hosts = hosts
        threading.Thread(target=nova.serve_forever, daemon=True).start()
        url = f'http://127.0.0.1:{nova.server_port}'
        with harness.running(home, {
                'probe': {'max_link_share': 1},
                'limits': {'max_registered_per_project': 1},
                'nova': {'auth_type': 'none', 'endpoint_override': url,
                         'placement_endpoint_override': url},
                'reevaluation': {'interval_s': 0.2}} | (options or {}),
                constants=CONSTANTS) as controller:
            yield controller
        nova.shutdown()


class Recorder:
    """Sends requests, and keeps a normalised sample of each operation.

    :ivar samples: by name of the operation.
    """

    def __init__(self, controller):
        self._call, self._url = controller.call, controller.url
        self._home = str(controller.home)
        self.samples = {}
        self._ids = {}

    def __call__(self, name, body=None, query='', /, **parameters):
        """Return the answer, and keep the sample."""
        one = BY_NAME[name]
        path = one.path.format(**parameters) + query
        if one.answer is str:
            found = '\n'.join(re.findall('.*virtco_coflows.*', requests.get(
                self._url + path, timeout=harness.DEADLINE_S).text))
        else:
            found = self._call(one.method, path, body, one.status)
        self.samples.setdefault(name, {
            'request': self._plain('', {'path': path, 'body': body}),
            'response': self._plain('', found), 'status': one.status})
        return found

    def fail(self, status, name, body=None, headers=None, /, **parameters):
        """Send a request that fails, and keep the answer."""
        one = BY_NAME[name]
        self.keep(status, name, self._call(
            one.method, one.path.format(**parameters), body, status,
            headers=headers))

    def keep(self, status, name, found):
        """Keep the answer to a request that failed."""
        self.samples[name].setdefault('failures', {})[str(status)] = (
            self._plain('', found))

    def _plain(self, name, value):
        """Replace ids and times, which differ between runs."""
        if isinstance(value, dict):
            return {key: self._plain(name if name in TIMED else key, one)
                    for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._plain(name, one) for one in value]
        if isinstance(value, str):
            return _ID.sub(self._stand_in, value.replace(
                self._home, '/var/lib/virtco'))
        if isinstance(value, float) and abs(value - time.time()) < 1e6:
            return EPOCH_S
        if isinstance(value, int | float) and not isinstance(value, bool):
            return TIMED.get(name, value)
        return value

    def _stand_in(self, matched):
        number = self._ids.setdefault(matched.group(), len(self._ids) + 1)
        return str(uuid.UUID(int=number, version=4))


def record(controller):
    """Send a request for each operation; the samples by its name."""
    cloud = Cloud(controller)
    call = Recorder(controller)
    _operate(call)
    _launch(call, cloud)
    _show(call, cloud, cloud.instance(0))
    _plan(call, controller)
    _measure(call, controller)
    _count(call, cloud)
    _fail(call, controller)
    return call.samples


def _operate(call):
    call('listVersions')
    call('showVersion')
    call('showHealth')
    call('showSettings')
    call('changeSettings', {'order': 'sebf'})
    call('importTopology', {'planes': [{
        'name': 'front-end',
        'levels': [{'name': 'rack', 'oversubscription': 4}],
        'nodes': [{'name': 'rack1', 'uplink': '10Gbit',
                   'hosts': 'compute[1-2]'}]}]})
    call('showTopology')
    call('changeProject', {'priority_class': 1, 'weight': 2.0},
         project_id='analytics')
    call('showProject', project_id='analytics')
    call('listProjects')


def _launch(call, cloud):
    """Launch a group of two VMs whose hosts report."""
    for src, dst in (HOSTS, HOSTS[::-1]):
        cloud.controller.streams.measure(src, dst, 9e8, rtt_s=0.0002,
                                         loss=0.0, method='train')
    for row, host in enumerate(HOSTS):
        edge = harness.Edge(cloud, host, [row], 1e9)
        edge.report()
        # The first generation; the class comes with another.
        assert edge.policy() is not None
    for row in range(2):
        body = harness.placement(
            row, 'shuffle', MATRIX, hosts=dict.fromkeys(HOSTS, 1),
            hints={'virtco:app': 'wordcount'}, num_instances=2,
            project_id=cloud.project)
        found = call('place', body, instance_uuid=cloud.instance(row))
        call('notify', {
            'event_type': 'instance.create.end', 'payload': {
                'nova_object.data': {'uuid': cloud.instance(row),
                                     'host': found['host']}}})


def _show(call, cloud, first):
    """Ask for all that there is about the group and its hosts."""
    coflow_id = cloud.coflow('shuffle')['id']
    harness.Edge(cloud, 'compute1').wait_class(coflow_id)
    # The rate is shown a moment after the class. Metrics are those of the last
    # round, which may be older.
    harness.wait_for(lambda: cloud.coflow('shuffle')['rate_bps'])
    harness.wait_for(lambda: cloud.controller.metrics()[
        'virtco_coflows{state="active"}'] == 1)
    call('showPlacement', instance_uuid=first)
    call('explainPlacement', None, '?budget_s=60', instance_uuid=first)
    call('listCoflows', None, '?project_id=analytics&state=active')
    call('showCoflow', coflow_id=coflow_id)
    call('listHosts')
    call('showHost', host='compute1')
    call('showPolicy', host='compute1')
    call('showDistributor')
    call('showMetrics')
    call('changeCoflow', {'weight': 2.0}, coflow_id=coflow_id)
    call('announceCoflow', {'name': 'epoch-7', 'tm': [[0, 1e9], [0, 0]]},
         group='shuffle')
    # Plans count with it.
    harness.wait_for(lambda: cloud.coflow('epoch-7')['state'] == 'active')
    cloud.call('PUT', f'/v1/placements/{cloud.instance(9)}',
               harness.placement(9, 'broken', '[[0]', hosts={'compute1': 1},
                                 project_id='analytics'))
    call('listEvents', None, '?project_id=analytics')
    call('showClusters', group='shuffle')


def _plan(call, controller):
    room = {'vcpus': 2, 'memory_mb': 65536, 'disk_gb': 500}
    flavor = {'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 20}
    hosts = [{'host': host, 'free': room} for host in HOSTS]
    call('plan', {'hosts': hosts, 'groups': [{
        'name': 'train', 'tm': [[0, 1e9], [0, 0]], 'flavor': flavor}]})
    call('countCapacity', {'flavor': flavor, 'level': 'rack', 'hosts': hosts,
                           'vms': [8]})
    harness.wait_for(lambda: controller.call(
        'GET', '/v1/performers')['hosts'])
    call('listRates')
    call('showMatrix', kind='rate')
    call('listPerformers')
    call('adviseTree', None, '?size_bytes=8000000', group='shuffle')
    call('adviseMapping', {'all_reduce_bytes': 1e9}, group='shuffle')
    call('drainHost', {'reason': 'fans'}, host='compute2')
    call('findMoves', {'budget_s': 1.0})
    harness.wait_for(lambda: 'drain' in [
        move['reason'] for move in controller.call('GET', '/v1/advice')[
            'moves']])
    call('listMoves')
    call('undrainHost', host='compute2')


def _measure(call, controller):
    ordered = call('orderProbes', {'pairs': [HOSTS]})
    harness.wait_for(lambda: _answer(controller) or controller.call(
        'GET', f'/v1/probes/{ordered["id"]}')['done'])
    call('showProbe', probe_id=ordered['id'])
    call('showProbing')
    ordered = call('orderCheck', {'hosts': HOSTS})
    harness.wait_for(lambda: _answer(controller) or controller.call(
        'GET', f'/v1/checks/{ordered["check_id"]}')['state'] == 'done')
    call('showCheck', check_id=ordered['check_id'])
    call('listChecks')


def _answer(controller):
    """Measure half of the link's rate for each train that was ordered."""
    for host in HOSTS:
        for train in controller.streams.trains(host):
            if train['role'] != 'receive':
                controller.streams.measure(
                    host, train['peer'], 5e8, wait=False, loss=0.0,
                    probe_id=train['probe_id'], sent_bytes=1e6, rtt_s=0.0002,
                    method='train')


def _count(call, cloud):
    """Let the hosts count the bytes of the group, then end it."""
    coflow_id = cloud.coflow('shuffle')['id']
    edge = harness.Edge(cloud, 'compute1', [0], 1e9)
    edge.count(coflow_id, 10e6, 'compute2')
    edge.report()
    harness.wait_for(lambda: cloud.call(
        'GET', '/v1/profiles?project_id=analytics')['profiles'])
    call('listProfiles', None, '?project_id=analytics')
    call('showProfile', group='shuffle')
    call('listApps', None, '?project_id=analytics')
    call('showApp', None, '?project_id=analytics', name='wordcount')
    call('forgetApp', None, '?project_id=analytics', name='wordcount')
    found = call('registerCoflow', {
        'project_id': 'analytics', 'name': 'sort', 'tm': [[0, 1e9], [0, 0]]})
    call('deleteCoflow', coflow_id=found['id'])
    call('releasePlacement', instance_uuid=cloud.instance(1))
    harness.Edge(cloud, 'compute3').report()
    call('forgetHost', host='compute3')
    call('deletePlane', plane='front-end')
    call('listChanges')


def _fail(call, controller):
    """Have each failure that operations have in common, and each conflict."""
    call.fail(400, 'changeSettings', {'order': 'first'})
    matrix = {'project_id': 'full', 'name': 'sort', 'tm': [[0, 1e9], [0, 0]]}
    call('registerCoflow', matrix)
    call.fail(403, 'registerCoflow', matrix)
    call.fail(404, 'showCoflow', coflow_id='wordcount')
    call.fail(406, 'showSettings', None, {versions.HEADER: 'virtco 2.0'})
    call.fail(409, 'importTopology', {'generation': 1, 'planes': [{
        'name': 'front-end', 'nodes': [{'name': 'rack1', 'hosts': 'a[1-2]'}]
    }]})
    call.fail(409, 'forgetHost', host='compute1')
    call.fail(409, 'plan', {
        'hosts': [{'host': 'compute1', 'free': {
            'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}}],
        'groups': [{'name': 'train', 'tm': [[0, 1e9], [0, 0]], 'flavor': {
            'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 20}}]})
    call.keep(429, 'showVersion', _refused(controller))
    for path in controller.home.glob('virtco.sqlite*'):
        path.rename(path.with_name('moved-' + path.name))
    call.fail(503, 'showProject', project_id='analytics')


def _refused(controller):
    """Ask without a token until a request is refused; return its answer."""
    def ask(_number):
        return requests.get(controller.url + '/v1', timeout=harness.DEADLINE_S)

    with futures.ThreadPoolExecutor(64) as pool:
        while True:
            for found in pool.map(ask, range(400)):
                if found.status_code == 429:
                    return found.json()


def _differing(found, known, path=''):
    """Yield where two samples differ in more than the progress of coflows,
    which is not known yet (null) or is further on a slow machine.
    """
    if isinstance(found, dict) and isinstance(known, dict) and (
            found.keys() == known.keys()):
        for key, value in found.items():
            if key not in PROGRESS:
                yield from _differing(value, known[key], f'{path}.{key}')
    elif isinstance(found, list) and isinstance(known, list) and (
            len(found) == len(known)):
        for at, pair in enumerate(zip(found, known)):
            yield from _differing(*pair, f'{path}[{at}]')
    elif found != known and None not in (found, known):
        yield path, found, known


def test_each_sample_is_what_a_controller_answers(tmp_path):
    known = json.loads(SAMPLES.read_text())
    with running(tmp_path) as found:
        assert list(_differing(record(found), known)) == []


def main():
    with (tempfile.TemporaryDirectory() as home,
          running(home) as controller):
        found = record(controller)
    SAMPLES.write_text(json.dumps(found, indent=1, sort_keys=True) + '\n')
    (API / 'openapi.json').write_text(openapi.render(json.loads(
        SAMPLES.read_text())))


if __name__ == '__main__':
    main()
