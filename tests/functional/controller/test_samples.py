# SPDX-License-Identifier: Apache-2.0

"""Each operation of the API once, and the samples that the docs show.

``VIRTCO_RECORD=1`` records the samples anew, of which ``python -m
virtco.api.openapi`` makes the document.
"""

import json
import os
import pathlib
import urllib.parse

import msgspec
import pytest
import requests

from tests import answers
from tests import patience
from tests.functional.controller import harness
from virtco.api import routes

PATH = pathlib.Path(__file__).parents[3] / 'doc/source/api/samples.json'
ROOM = {'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 20}
HOSTS = ('h0', 'h1', 'h2')
UUIDS = ('d2b6c6a4-7d0f-4c5f-9a52-6b6b5b0e9d1c',
         '3f0c5a1e-94b7-4d26-8c1d-0e7a2b9f6d58',
         '9a4e7c20-5b1d-4f83-b6a9-c2d81e3f7045')
MATRIX = [[0, 1_000_000_000], [0, 0]]
#: Of each list a sample shows so many items.
MOST_ITEMS = 2
#: Of a number, so that a time is exact to a millisecond.
DIGITS = 13
#: Of the text of /metrics.
MOST_LINES = 6


class Caller:
    """Calls operations, and keeps the first success of each.

    :ivar samples: by operationId: request, status and response.
    """

    def __init__(self, controller, tenant):
        self._controller, self._tenant = controller, tenant
        self.samples = {}

    def call(self, method, path, body=None):
        """Of the answer: its body."""
        path = path.replace('PROJECT', self._tenant.project)
        found = requests.request(method, self._controller.url + path,
                                 json=body, timeout=60)
        assert found.ok, (method, path, found.text)
        answers.check(method, path, found.status_code, found.content)
        one = answers.find(method, path)
        is_json = 'json' in found.headers.get('Content-Type', '')
        answer = (None if not found.content else
                  found.json() if is_json else found.text)
        self.samples.setdefault(one.name, {
            'request': {'path': urllib.parse.unquote(path), 'body': body},
            'status': found.status_code, 'response': answer})
        return answer


@pytest.fixture(scope='module')
def samples(tmp_path_factory):
    """All operations of one cloud of three hosts and a shuffle."""
    with harness.running(
            tmp_path_factory.mktemp('samples'),
            {'probe': {'enabled': True}},
            constants={'virtco.objects.profiles.FLUSH_S': 0.2}) as controller:
        tenant = controller.tenant()
        caller = Caller(controller, tenant)
        _of_operators(caller, tenant)
        _of_a_group(caller, tenant)
        _of_measurements(caller, tenant)
        _ends(caller, tenant)
        yield {name: _trimmed(found, tenant) for name, found
               in sorted(caller.samples.items())}


def _of_operators(caller, tenant):
    call = caller.call
    call('GET', '/')
    call('GET', '/v1')
    call('GET', '/v1/distributor')
    call('PUT', '/v1/topology', {'planes': [{
        'name': 'front-end', 'levels': [{
            'name': 'rack', 'oversubscription': 4}], 'nodes': [
            {'name': f'rack{number}', 'uplink': '10Gbit',
             'hosts': ','.join(map(tenant.host, hosts))}
            for number, hosts in enumerate((('h0', 'h1'), ('h2',)))]}]})
    call('GET', '/v1/topology')
    call('POST', '/v1/capacity', {
        'flavor': ROOM, 'level': 'rack', 'vms': [4], 'hosts': [
            {'host': tenant.host(host), 'free': {
                'vcpus': 16, 'memory_mb': 65536, 'disk_gb': 500}}
            for host in HOSTS]})
    call('PATCH', '/v1/settings', {'order': 'sebf'})
    call('PATCH', '/v1/settings', {'order': 'mrtf'})
    call('GET', '/v1/settings')
    call('GET', '/v1/settings/history')
    call('GET', '/health')
    call('GET', '/metrics')


def _of_a_group(caller, tenant):
    call = caller.call
    for host in HOSTS:
        harness.Edge(tenant, host).report()
    call('POST', '/v1/coflows', {
        'project_id': tenant.project, 'name': 'later', 'tm': MATRIX})
    hosts = []
    for row in range(2):
        body = harness.placement(
            row, 'shuffle', '[[0, "1GB"], [0, 0]]', launch_index=row,
            num_instances=2, slots=1, n_hosts=2,
            hints={'virtco:app': 'sort'})
        body |= {'project_id': tenant.project, 'flavor': ROOM}
        for offer in body['hosts']:
            offer['host'] = offer['node'] = tenant.host(offer['host'])
            offer['free']['vcpus'] = 2
        answer = call('PUT', f'/v1/placements/{tenant.instance(row)}', body)
        assert answer['status'] == 'planned', answer
        hosts.append(tenant.name(answer['host']))
        call('POST', '/v1/notifications', {
            'event_type': 'instance.create.end', 'payload': {
                'nova_object.data': {'uuid': tenant.instance(row),
                                     'host': answer['host']}}})
    bad = harness.placement(2, 'sort', '[[0, "1 apple"], [0, 0]]',
                            hosts={tenant.host('h2'): 1})
    call('PUT', f'/v1/placements/{tenant.instance(2)}',
         bad | {'project_id': tenant.project})
    edges = tenant.edges(hosts)
    coflow = tenant.coflow('shuffle')
    sender = edges[hosts[0]]
    sender.wait_class(coflow['id'])
    sender.count(coflow['id'], 1e6, hosts[1])
    sender.report()
    patience.wait_for(lambda: tenant.coflow('shuffle')['sent_bytes'],
                      'what was sent')
    uuid, group = tenant.instance(0), 'shuffle'
    call('GET', f'/v1/placements/{uuid}')
    call('GET', f'/v1/placements/{uuid}/explanation?budget_s=1')
    call('GET', '/v1/coflows?project_id=PROJECT')
    call('GET', f'/v1/coflows/{coflow["id"]}')
    call('POST', f'/v1/groups/{group}/coflows?project_id=PROJECT', {
        'name': 'epoch-7', 'tm': MATRIX})
    call('PATCH', f'/v1/coflows/{tenant.coflow("epoch-7")["id"]}', {
        'state': 'done'})
    call('GET', f'/v1/groups/{group}/tree?project_id=PROJECT')
    call('POST', f'/v1/groups/{group}/mapping?project_id=PROJECT', {
        'all_reduce_bytes': 1e9})
    call('GET', f'/v1/groups/{group}/clusters?project_id=PROJECT')
    call('PATCH', '/v1/projects/PROJECT', {
        'priority_class': 1, 'weight': 2.0})
    call('GET', '/v1/projects/PROJECT')
    call('GET', '/v1/projects')
    call('GET', '/v1/events?project_id=PROJECT')
    call('POST', '/v1/plans', {'groups': [{
        'name': 'train', 'tm': MATRIX, 'flavor': ROOM}], 'hosts': [
            {'host': tenant.host(host), 'free': {
                'vcpus': 16, 'memory_mb': 65536, 'disk_gb': 500}}
            for host in HOSTS]})
    call('POST', '/v1/advice', {'budget_s': 0.1})
    call('GET', '/v1/advice')


def _of_measurements(caller, tenant):
    call = caller.call
    src, dst = map(tenant.host, HOSTS[:2])
    for ends in ((src, dst), (dst, src)):
        tenant.controller.streams.measure(
            *ends, 9.5e7, loss=0.0, rtt_s=0.001, method='train',
            sent_bytes=2_000_000)
    call('GET', '/v1/rates')
    call('GET', '/v1/matrices/rate')
    call('GET', '/v1/performers')
    ordered = call('POST', '/v1/probes', {'pairs': [[src, dst]]})
    call('GET', f'/v1/probes/{ordered["id"]}')
    call('GET', '/v1/probes')
    ordered = call('POST', '/v1/checks', {'hosts': [src, dst]})
    call('GET', f'/v1/checks/{ordered["check_id"]}')
    call('GET', '/v1/checks')
    call('GET', '/v1/hosts')
    call('GET', f'/v1/hosts/{src}')
    call('GET', f'/v1/hosts/{src}/policy')
    call('PUT', f'/v1/hosts/{src}/drain', {'reason': 'fans'})
    call('DELETE', f'/v1/hosts/{src}/drain')


def _ends(caller, tenant):
    call = caller.call
    patience.wait_for(lambda: tenant.call('GET', '/v1/profiles', params={
        'project_id': tenant.project})['profiles'], 'the profile')
    call('GET', '/v1/profiles?project_id=PROJECT')
    call('GET', '/v1/profiles/shuffle?project_id=PROJECT')
    call('DELETE', f'/v1/coflows/{tenant.coflow("shuffle")["id"]}')
    for row in range(2):
        call('DELETE', f'/v1/placements/{tenant.instance(row)}')
    patience.wait_for(lambda: tenant.call('GET', '/v1/apps', params={
        'project_id': tenant.project})['apps'], 'what was learned')
    call('GET', '/v1/apps?project_id=PROJECT')
    call('GET', '/v1/apps/sort?project_id=PROJECT')
    call('DELETE', '/v1/apps/sort?project_id=PROJECT')
    call('DELETE', '/v1/topology/front-end')
    call('DELETE', f'/v1/hosts/{tenant.host("h2")}')


def _trimmed(sample, tenant):
    """Short lists, and names of hosts and projects as a cloud has them."""
    text = msgspec.json.encode(sample).decode()
    for name, shown in {
            tenant.project: '5c8f',
            **{tenant.instance(row): uuid for row, uuid in enumerate(UUIDS)},
            **{tenant.host(host): f'compute{host[1]}' for host in HOSTS}
            }.items():
        text = text.replace(name, shown)

    def cut(value):
        if isinstance(value, dict):
            return {name: cut(one) for name, one in value.items()}
        if isinstance(value, list):
            return [cut(one) for one in value[:MOST_ITEMS]]
        if isinstance(value, float):
            return float(f'{value:.{DIGITS}g}')
        if isinstance(value, str) and value.count('\n') > MOST_LINES:
            return '\n'.join(value.splitlines()[:MOST_LINES]) + '\n'
        return value

    return cut(json.loads(text))


def _shape(value):
    """Names and types; what may be null has none."""
    if isinstance(value, dict):
        return {name: _shape(one) for name, one in value.items()
                if one is not None}
    if isinstance(value, list):
        return [_shape(one) for one in value[:1]]
    return 'number' if isinstance(value, int | float) and (
        not isinstance(value, bool)) else type(value).__name__


def _differing(here, there, path=''):
    """Where two shapes have the same name with different types."""
    if isinstance(here, dict) and isinstance(there, dict):
        return [one for name in here.keys() & there.keys()
                for one in _differing(here[name], there[name],
                                      f'{path}.{name}')]
    if isinstance(here, list) and isinstance(there, list):
        return [one for a, b in zip(here, there)
                for one in _differing(a, b, f'{path}[]')]
    return [] if here == there else [(path, here, there)]


def test_samples_are_recorded(samples):
    """Only if asked for."""
    if os.environ.get('VIRTCO_RECORD'):
        PATH.write_text(json.dumps(samples, indent=1) + '\n')
    assert samples.keys() == {one.name for one in routes.OPERATIONS}


def test_the_samples_of_the_docs_are_what_is_answered(samples):
    recorded = json.loads(PATH.read_text())
    assert samples.keys() == recorded.keys()
    for name, found in samples.items():
        assert found['status'] == recorded[name]['status'], name
        assert found['request']['body'] == recorded[name]['request'][
            'body'], name
        assert _differing(_shape(found['response']), _shape(
            recorded[name]['response']), name) == []
