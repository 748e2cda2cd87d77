# SPDX-License-Identifier: Apache-2.0

"""What the cloud's keeper asks of Keystone, Nova, Glance and Neutron."""

import collections
import types
from unittest import mock

import pytest

from tests.unit.lab.cloud import made
from virtco_lab.cloud import accounts
from virtco_lab.cloud import layout as layouts


@pytest.fixture(name='cloud')
def _cloud(monkeypatch):
    """A connection that notes what it is asked for."""
    connection = mock.MagicMock()
    monkeypatch.setattr(accounts.openstack, 'connect', connection)
    return connection


def _asked(call):
    return [given.kwargs for given in call.call_args_list]


def test_a_connection_takes_nothing_from_the_machine(cloud, tmp_path):
    accounts.connect(made.layout(tmp_path), 'demo')
    given, = _asked(cloud)
    assert given == {
        'auth_url': 'http://127.0.0.1:5000/v3', 'username': 'demo',
        'password': layouts.PASSWORD, 'project_name': 'demo',
        'user_domain_name': 'Default', 'project_domain_name': 'Default',
        'region_name': layouts.REGION, 'cacert': f'{tmp_path}/tls/ca.pem',
        'load_yaml_config': False, 'load_envvars': False}


def test_each_service_and_host_has_a_user_and_each_service_its_endpoints(
        cloud, tmp_path):
    layout = made.layout(tmp_path)
    identity = cloud.return_value.identity
    identity.roles.return_value = [types.SimpleNamespace(name=name)
                                   for name in ('admin', 'member')]
    for call in ('project', 'user', 'role'):
        getattr(identity, f'create_{call}').side_effect = (
            lambda name, **_: types.SimpleNamespace(name=name))
    identity.create_service.side_effect = (
        lambda name, type: types.SimpleNamespace(id=f'{type}-id'))
    accounts.add_accounts(layout)
    # What was there is not made again.
    assert [one['name'] for one in _asked(identity.create_role)] == [
        'service', 'reader']
    roles = collections.defaultdict(set)
    for one in _asked(identity.assign_project_role_to_user):
        roles[one['project'].name, one['user'].name].add(one['role'].name)
    both = {'service', 'admin'}
    assert roles == {
        **{('service', name): both for name in (
            'nova', 'placement', 'glance', 'neutron', 'virtco')},
        **{('service', host): {'service'} for host in layout.computes},
        ('demo', 'demo'): {'member'}}
    assert {one['password'] for one in _asked(identity.create_user)} == {
        layouts.PASSWORD}
    urls = collections.defaultdict(dict)
    for one in _asked(identity.create_endpoint):
        assert one['region_id'] == layouts.REGION
        urls[one['service_id']][one['interface']] = one['url']
    assert urls == {
        f'{kind}-id': {'public': url, 'internal': url} for kind, url in {
            'image': 'http://127.0.0.1:9292',
            'compute': 'http://127.0.0.1:8774/v2.1',
            'placement': 'http://127.0.0.1:8778',
            'network': 'http://127.0.0.1:9696',
            'coflow': 'https://127.0.0.1:8791'}.items()}


def test_a_tenant_is_offered_a_slot_an_image_and_a_network(cloud, tmp_path):
    found = cloud.return_value
    found.image.create_image.return_value.name = accounts.IMAGE
    found.network.create_network.return_value.id = 'network-id'
    accounts.add_offers(made.layout(tmp_path))
    assert _asked(found.compute.create_flavor) == [
        {'name': 'slot1', 'vcpus': 1, 'ram': 512, 'disk': 1}]
    image, = _asked(found.image.create_image)
    assert (image['name'], image['visibility']) == ('tiny', 'public')
    assert _asked(found.network.create_network) == [
        {'name': 'lab', 'shared': True, 'provider_network_type': 'flat',
         'provider_physical_network': 'physnet1'}]
    # Nobody answers DHCP and there is nowhere to route to.
    assert _asked(found.network.create_subnet) == [
        {'network_id': 'network-id', 'name': 'lab', 'ip_version': 4,
         'cidr': '10.64.0.0/16', 'enable_dhcp': False, 'gateway_ip': None}]
    found.image.create_image.return_value.name = 'other'
    with pytest.raises(AssertionError):
        accounts.add_offers(made.layout(tmp_path))


def test_a_hypervisor_is_up_once_nova_and_its_cell_know_it(cloud, tmp_path):
    compute = cloud.return_value.compute
    compute.services.return_value = [
        types.SimpleNamespace(host=host, binary=binary, state=state)
        for host, binary, state in (
            ('compute1', 'nova-compute', 'up'),
            ('compute2', 'nova-compute', 'down'),
            ('compute3', 'nova-compute', 'up'),
            ('compute4', 'nova-conductor', 'up'),
            ('compute5', 'nova-conductor', 'up'),
            ('compute6', 'nova-compute', 'down'))]
    compute.hypervisors.return_value = [
        types.SimpleNamespace(name=f'compute{number}')
        for number in (1, 2, 4, 5, 6)]
    assert accounts.n_computes_up(made.layout(tmp_path)) == 1
