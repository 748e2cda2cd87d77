# SPDX-License-Identifier: Apache-2.0

"""What is asked of Nova and placement, against a server that answers so."""

import http.server
import json
import threading
from urllib import parse

from keystoneauth1 import noauth
from keystoneauth1 import session as ks_session
import pytest

from virtco import exception
from virtco.osc import nova_facts
from virtco.topology import nova_topology as nova

ANSWERS = {
    '/os-aggregates': {'aggregates': [
        {'name': 'a', 'hosts': ['h1'], 'availability_zone': 'z1',
         'metadata': {'virtco:rack': 'r1', 'availability_zone': 'z1'}}]},
    '/traits?name=startswith:CUSTOM_RACK_': {'traits': ['CUSTOM_RACK_R2']},
    '/traits?name=startswith:CUSTOM_ZONE_': {'traits': []},
    '/resource_providers?required=CUSTOM_RACK_R2': {
        'resource_providers': [{'uuid': 'u', 'name': 'h2'}]},
    '/flavors/detail?is_public=None': {'flavors': [
        {'id': '7', 'name': 'm', 'vcpus': 2, 'ram': 4096, 'disk': 10,
         'OS-FLV-EXT-DATA:ephemeral': 5, 'swap': 1023}],
        'flavors_links': [{'rel': 'next', 'href': '…'}]},
    '/flavors/detail?is_public=None&marker=7': {'flavors': [
        {'id': '8', 'name': '9', 'vcpus': 3, 'ram': 1, 'disk': 0},
        {'id': '9', 'name': 'x', 'vcpus': 4, 'ram': 1, 'disk': 0}]},
    '/resource_providers': {'resource_providers': [
        {'uuid': 'u', 'name': 'h2'}, {'uuid': 'v', 'name': 'h2_gpu'}]},
    '/allocation_candidates?resources=VCPU:2,MEMORY_MB:4096,DISK_GB:16'
    '&required=!COMPUTE_STATUS_DISABLED': {'provider_summaries': {
        'u': {'resources': {'VCPU': {'capacity': 32, 'used': 5},
                            'MEMORY_MB': {'capacity': 8192, 'used': 512},
                            'DISK_GB': {'capacity': 100, 'used': 0}}},
        'v': {'resources': {'VGPU': {'capacity': 4, 'used': 0}}}}},
}


class _Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        found = ANSWERS.get(parse.unquote(self.path))
        self.send_response(200 if found is not None else 404)
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    def log_message(self, *args):
        pass


@pytest.fixture
def session():
    server = http.server.HTTPServer(('127.0.0.1', 0), _Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield ks_session.Session(auth=noauth.NoAuth(
        endpoint=f'http://127.0.0.1:{server.server_port}'))
    server.shutdown()
    thread.join()
    server.server_close()


def test_aggregates_zones_and_traits(session):
    aggregates, traits = nova_facts.read(session, ('rack', 'zone'))
    assert aggregates == [nova.Aggregate(
        'a', ('h1',), {'virtco:rack': 'r1', 'availability_zone': 'z1'},
        'z1')]
    assert traits == {'h2': ['CUSTOM_RACK_R2']}
    read = nova.read(aggregates, traits, ('rack', 'zone'))
    assert [root.name for root in read.topology.planes[0].roots] == [
        'z1', 'R2']


def test_traits_are_bounded(session, monkeypatch):
    monkeypatch.setattr(nova_facts, 'MAX_TRAITS', 1)
    _aggregates, traits = nova_facts.read(session, ('rack',))
    assert traits
    monkeypatch.setattr(nova_facts, 'MAX_TRAITS', 0)
    with pytest.raises(exception.NovaUnavailable, match='1 traits of level'):
        nova_facts.read(session, ('rack',))


def test_a_nova_that_is_wrong_or_without_login(session):
    with pytest.raises(exception.NovaUnavailable, match='NotFound'):
        nova_facts.read(session, ('pod',))
    with pytest.raises(exception.Invalid, match='keystone'):
        nova_facts.read(None, ('rack',))


def test_what_a_flavor_takes_and_what_is_left(session):
    demand = nova_facts.flavor(session, 'm')
    assert demand == {'vcpus': 2, 'memory_mb': 4096, 'disk_gb': 16}
    assert nova_facts.flavor(session, '7') == demand
    assert nova_facts.free(session, demand) == {
        'h2': {'vcpus': 27, 'memory_mb': 7680, 'disk_gb': 100}}
    with pytest.raises(exception.NotFound, match='Flavor big'):
        nova_facts.flavor(session, 'big')


def test_a_flavor_without_further_disks(session, monkeypatch):
    """Nova tells of no swap by an empty text."""
    monkeypatch.setitem(ANSWERS, '/flavors/detail?is_public=None', {
        'flavors': [{'id': '8', 'name': 's', 'vcpus': 1, 'ram': 512,
                     'disk': 7, 'swap': ''}]})
    assert nova_facts.flavor(session, 's') == {
        'vcpus': 1, 'memory_mb': 512, 'disk_gb': 7}


def test_only_what_a_vm_takes_is_asked_of_placement(session, monkeypatch):
    """And a host that has nothing of a kind has nothing of it free."""
    monkeypatch.setitem(
        ANSWERS, '/allocation_candidates?resources=VCPU:1,DISK_GB:1'
        '&required=!COMPUTE_STATUS_DISABLED', {'provider_summaries': {'u': {
            'resources': {'VCPU': {'capacity': 32, 'used': 5}}}}})
    assert nova_facts.free(session, {
        'vcpus': 1.0, 'memory_mb': 0.0, 'disk_gb': 0.5}) == {
            'h2': {'vcpus': 27, 'memory_mb': 0, 'disk_gb': 0}}


@pytest.mark.parametrize('of_nova, of_operator, zone', [
    ('z1', None, 'z1'), (None, 'z2', 'z2'), ('z1', 'z2', 'z1'),
    (None, None, None)])
def test_the_zone_of_an_aggregate(session, monkeypatch, of_nova, of_operator,
                                  zone):
    """Older releases of Nova have it among the metadata only."""
    body = {'name': 'a', 'hosts': []}
    if of_nova:
        body['availability_zone'] = of_nova
    if of_operator:
        body['metadata'] = {'availability_zone': of_operator}
    monkeypatch.setitem(ANSWERS, '/os-aggregates', {'aggregates': [body]})
    (found,), _traits = nova_facts.read(session, ())
    assert found == nova.Aggregate('a', (), body.get('metadata', {}), zone)


@pytest.mark.parametrize(('name', 'vcpus'), [
    ('m', 2), ('8', 3), ('x', 4),
    # The id of one is the name of another.
    ('9', 4)])
def test_a_flavor_is_found_on_any_page(session, name, vcpus):
    assert nova_facts.flavor(session, name)['vcpus'] == vcpus
