# SPDX-License-Identifier: Apache-2.0

"""The cloud's configuration files, without a cloud."""

import configparser
import dataclasses
import json
import os
import pathlib
import sys
import tomllib

import pytest

from virtco_lab.cloud import command
from virtco_lab.cloud import configs
from virtco_lab.cloud import layout as layouts
from virtco_lab.emulation import process

ROOT = pathlib.Path(__file__).parents[4]
LAYOUT = layouts.Layout('abc123', '172.30.0.1', ('compute1', 'compute2'), 2,
                        5e7, 42)


def _read(groups):
    config = configparser.RawConfigParser(strict=False)
    config.optionxform = str
    config.read_string(process.ini(groups))
    return config


def test_an_option_of_many_values_is_written_once_for_each():
    assert process.ini({'a': {'x': [1, 2], 'y': 'z'}}) == (
        '[a]\nx = 1\nx = 2\ny = z\n')


@pytest.mark.parametrize('groups', [
    configs.placement(LAYOUT, 'db'), configs.glance(LAYOUT, 'db'),
    configs.neutron(LAYOUT, 'db', 'rabbit'),
    configs.nova(LAYOUT, 'db', 'api', 'rabbit'),
    configs.controller(LAYOUT, 0, 'db', 'rabbit')])
def test_services_check_tokens_with_an_account_of_their_own(groups):
    section = _read(groups)['keystone_authtoken']
    assert section['auth_url'] == 'http://172.30.0.1:5000/v3'
    assert section['username'] in {*layouts.PORTS, 'virtco'}


def test_nova_asks_the_controllers_over_tls():
    virtco = _read(configs.nova(LAYOUT, 'db', 'api', 'rabbit'))['virtco']
    assert virtco['controller_url'] == 'https://172.30.0.1:8791'
    assert virtco['cafile'] == '/run/virtco-cloud/tls/ca.pem'


def test_a_backend_has_its_drivers_and_its_source_of_ports():
    ovn = dataclasses.replace(LAYOUT, backend='ovn')
    found = [_values(configs.neutron(layout, 'db', 'rabbit'),
                     'ml2.mechanism_drivers', 'ml2.extension_drivers',
                     'DEFAULT.service_plugins') for layout in (LAYOUT, ovn)]
    assert found == [['virtco_lab', '', ''],
                     ['ovn', 'port_security,qos', 'ovn-router,qos']]
    assert _values(configs.neutron(ovn, 'db', 'rabbit'),
                   'ovn.ovn_nb_connection', 'ovn.ovn_sb_connection') == [
        f'unix:/run/virtco-cloud/ovsdb-{name}/db.sock'
        for name in ('nb', 'sb')]
    # OVN's own keys are 38 bytes; a Geneve network has a number from here.
    assert _values(configs.neutron(ovn, 'db', 'rabbit'),
                   'ml2_type_geneve.max_header_size',
                   'ml2_type_geneve.vni_ranges') == ['38', '1:65535']
    assert _values(configs.edge(ovn, 'h0', '10.0.0.1'), 'edge.ports_backend',
                   'edge.ovsdb_connection') == [
        'ovs', 'unix:/run/virtco-cloud/ovsdb-h0/db.sock']


def test_neutron_finds_the_drivers_it_is_configured_with():
    project = tomllib.loads((ROOT / 'lab/pyproject.toml').read_text())[
        'project']
    (name, where), = project['entry-points'][
        'neutron.ml2.mechanism_drivers'].items()
    assert name == _read(
        configs.neutron(LAYOUT, 'db', 'rabbit'))['ml2']['mechanism_drivers']
    module, _, kind = where.partition(':')
    assert f'class {kind}(' in (
        ROOT / f'lab/{module.replace(".", "/")}.py').read_text()
    # Of an operator's Neutron it is none.
    assert 'neutron' not in (ROOT / 'setup.cfg').read_text().partition(
        '[entry_points]')[2]


def _values(groups, *names):
    found = _read(groups)
    return [found[group][option]
            for group, option in (name.split('.') for name in names)]


def test_a_cloud_of_one_machine_starts_few_workers():
    nova = configs.nova(LAYOUT, 'db', 'api', 'rabbit')
    assert _values(nova, 'DEFAULT.osapi_compute_workers', 'conductor.workers',
                   'scheduler.workers') == ['1', '1', '2']
    assert _values(configs.glance(LAYOUT, 'db'), 'DEFAULT.workers') == ['1']
    # The fewest rounds that bcrypt takes.
    assert _values(configs.keystone(LAYOUT, 'db'),
                   'security_compliance.password_hash_rounds',
                   'identity.password_hash_rounds') == ['4', '4']


def test_a_slot_is_a_vm_and_nothing_else_limits_tenants():
    nova = configs.nova(LAYOUT, 'db', 'api', 'rabbit')
    assert _values(nova, 'DEFAULT.cpu_allocation_ratio', 'quota.instances',
                   'quota.cores', 'quota.ram') == ['1.0', *3 * ['100000']]
    # Neutron takes it for no limit.
    assert _values(configs.neutron(LAYOUT, 'db', 'rabbit'),
                   'quotas.quota_port') == ['-1']


def test_a_token_lasts_for_a_day_and_a_launch_has_its_time():
    assert _values(configs.keystone(LAYOUT, 'db'), 'token.expiration') == [
        str(24 * 60 * 60)]
    controller = configs.controller(LAYOUT, 0, 'db', 'rabbit')
    plan_s, deadline_s = map(float, _values(
        controller, 'placement.budget_s', 'placement.deadline_s'))
    request_ms, all_ms = map(float, _values(
        configs.nova(LAYOUT, 'db', 'api', 'rabbit'), 'virtco.timeout_ms',
        'virtco.request_budget_ms'))
    assert (plan_s, deadline_s, request_ms, all_ms) == (1, 8, 10_000, 30_000)


def test_controllers_share_no_port_and_no_directory():
    made = [_read(configs.controller(LAYOUT, number, 'db', 'rabbit'))
            for number in range(2)]
    assert [(int(one['api']['port']), int(one['distributor']['port']))
            for one in made] == [(9791, 9792), (10791, 10792)]
    assert [one['controller']['state_dir'] for one in made] == [
        '/run/virtco-cloud/controller0', '/run/virtco-cloud/controller1']
    assert [one['DEFAULT']['log_file'] for one in made] == [
        '/run/virtco-cloud/controller0.log',
        '/run/virtco-cloud/controller1.log']
    assert [configs.controller_port(number) for number in range(2)] == [
        9791, 10791]


@pytest.mark.parametrize(('groups', 'names', 'paths'), [
    (configs.keystone(LAYOUT, 'db'),
     ('DEFAULT.log_file', 'fernet_tokens.key_repository',
      'credential.key_repository'),
     ('keystone.log', 'keystone/fernet', 'keystone/credential')),
    (configs.placement(LAYOUT, 'db'),
     ('DEFAULT.state_path', 'DEFAULT.log_file'),
     ('placement', 'placement.log')),
    (configs.glance(LAYOUT, 'db'),
     ('DEFAULT.log_file', 'f.filesystem_store_datadir',
      'oslo_concurrency.lock_path'), ('glance.log', 'glance', 'glance/lock')),
    (configs.edge(LAYOUT, 'h0', '10.0.0.1'),
     ('DEFAULT.log_file', 'edge.ports_file', 'edge.state_dir'),
     ('edge-h0.log', 'ports-h0.json', 'edge-h0'))])
def test_everything_is_below_the_clouds_directory(groups, names, paths):
    assert _values(groups, *names) == [f'/run/virtco-cloud/{path}'
                                       for path in paths]


def test_an_edge_limits_its_uplink_to_its_rate():
    edge = configs.edge(layouts.Layout('a', '172.30.0.1', ('h0',), 2,
                                       12345678.9, 42), 'h0', '10.0.0.7')
    assert _values(edge, 'edge.host', 'edge.link_egress_bps',
                   'edge.link_ingress_bps', 'edge.wire_overhead_bytes',
                   'probe.address', 'controller_auth.username') == [
                       'h0', '12345679', '12345679', '0', '10.0.0.7', 'h0']


def test_names_of_a_cloud_are_told_by_its_run():
    assert LAYOUT.control == 'virtco-emu-abc123-control'
    assert LAYOUT.namespace('compute1') == 'virtco-emu-abc123-compute1'
    # Namespaces and devices have short names.
    assert LAYOUT.vm_namespace('01234567-89ab-cdef-0123-456789abcdef') == (
        'virtco-emu-abc123-vm0123456789ab')
    assert LAYOUT.url('nova') == 'http://172.30.0.1:8774/v2.1'
    assert LAYOUT.url('glance') == 'http://172.30.0.1:9292'
    assert str(LAYOUT.config('nova')) == '/run/virtco-cloud/etc/nova/nova.conf'
    said = LAYOUT.environment('demo')
    assert (said['OS_USERNAME'], said['OS_CACERT']) == (
        'demo', '/run/virtco-cloud/tls/ca.pem')
    assert process.script('pip') == str(
        pathlib.Path(sys.executable).with_name('pip'))


def test_haproxy_knows_every_controller():
    text = configs.haproxy(LAYOUT, 3)
    ports = {configs.controller_port(number) for number in range(3)}
    assert len(ports) == 3
    assert all(f'172.30.0.1:{port} check' in text for port in ports)
    assert layouts.CONTROLLER_PORT not in ports


def test_a_saved_layout_is_found_again(tmp_path):
    layout = layouts.Layout('abc123', '172.30.0.1', ('c',), 2, 5e7, 42,
                            tmp_path)
    layout.save()
    assert layouts.load(tmp_path) == layout
    assert json.loads((tmp_path / 'cloud.json').read_text())['run'] == (
        'abc123')


def test_no_cloud_no_layout(tmp_path):
    assert layouts.load(tmp_path) is None


def test_what_a_killed_keeper_left_is_removed_and_nobody_is_signalled(
        tmp_path, monkeypatch):
    """Another process has its number by now: this one."""
    home = tmp_path / 'cloud'
    home.mkdir()
    layout = layouts.Layout('000000', '172.30.0.1', ('c',), 2, 5e7,
                            os.getpid(), home)
    layout.save()
    monkeypatch.setattr(layouts, 'load', lambda: layout)
    monkeypatch.setattr(command, '_PROGRESS', tmp_path / 'progress')
    monkeypatch.setattr(os, 'geteuid', lambda: 0)
    monkeypatch.setattr(command.namespaces, 'sweep', list)
    assert command.main(['down']) == 0
    assert not home.exists()


@pytest.mark.parametrize('argv', [
    ['up', '--computes', '0'], ['up', '--computes', '65'],
    ['up', '--slots', 'x'], ['sideways']])
def test_wrong_arguments_end_with_2(argv, capsys):
    with pytest.raises(SystemExit) as caught:
        command.main(argv)
    assert caught.value.code == 2
    assert 'error' in capsys.readouterr().err
