# SPDX-License-Identifier: Apache-2.0

"""How the product's own processes are started inside of a testbed."""

import configparser
import json

import pytest

from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import process
from virtco_lab.emulation import services


@pytest.fixture(name='started')
def _started(monkeypatch):
    made = []

    class Child(str):
        write_line = made.append

    def child(what, argv, log, **options):
        made.append((what, argv, log, options))
        return Child('a child')

    monkeypatch.setattr(services.process, 'Child', child)
    return made


def _fabric(n_hosts=2):
    found = fabric_module.Fabric('abc123')
    found.hypervisors = {f'h{n}': fabric_module.Hypervisor(
        f'h{n}', f'ns-h{n}', f'10.0.0.{n}', f'172.30.1.{n}')
        for n in range(n_hosts)}
    found.vms = {f'v{n}': fabric_module.VmPort(
        f'v{n}', f'h{n % 2}', f'ns{n}', f'tap{n}', f'0a:{n}', f'10.1.0.{n}')
        for n in range(3)}
    return found


def _read(path):
    found = configparser.RawConfigParser()
    found.read(path)
    return {group: dict(found[group]) for group in found.sections()} | {
        'DEFAULT': dict(found.defaults())}


def test_a_controller_runs_in_the_control_namespace(started, tmp_path):
    assert services.start_controller(
        _fabric(), tmp_path, tmp_path / 'logs') == 'a child'
    (what, argv, log, options), = started
    assert what == 'virtco-controller'
    assert argv == [process.script('virtco-controller'), '--config-file',
                    f'{tmp_path}/controller.conf']
    assert log == tmp_path / 'logs' / 'controller.log'
    assert options == {'namespace': 'virtco-emu-abc123-control'}
    found = _read(argv[-1])
    assert found.pop('DEFAULT') == {}
    assert found == {
        'api': {'host': '172.30.0.1', 'port': '8791'},
        'database': {
            'connection': f'sqlite:///{tmp_path}/controller.sqlite'},
        'placement': {'budget_s': '1', 'deadline_s': '8'},
        'scheduler': {'default_share': '0.02', 'beta': '0',
                      'interval_s': '0.1', 'quiet_s': '1.0'},
        'probe': {'interval_s': '0.2', 'freshness_s': '3600',
                  'max_link_share': '1'}}
    assert services.controller_url(_fabric()) == 'http://172.30.0.1:8791'


def test_options_of_a_controller_take_the_place_of_the_testbeds(
        started, tmp_path):
    services.start_controller(_fabric(), tmp_path, tmp_path, {
        'DEFAULT': {'debug': True}, 'probe': {'interval_s': 5},
        'other': {'a': 'b'}})
    found = _read(tmp_path / 'controller.conf')
    assert found['DEFAULT'] == {'debug': 'True'}
    assert found['probe']['interval_s'] == '5'
    assert found['probe']['max_link_share'] == '1'
    assert found['other']['a'] == 'b'


@pytest.mark.parametrize(('n_hosts', 'report_s', 'quiet_s'), [
    (8, '0.1', '1.0'), (9, '0.45', '1.35'), (40, '2.0', '6.0')])
def test_reports_come_less_often_from_many_hosts(n_hosts, report_s, quiet_s,
                                                 started, tmp_path):
    services.start_controller(_fabric(n_hosts), tmp_path, tmp_path)
    found = _read(tmp_path / 'controller.conf')['scheduler']
    assert found['interval_s'] == report_s
    assert float(found['quiet_s']) == pytest.approx(float(quiet_s))


def test_an_edge_module_runs_on_its_hypervisor(started, tmp_path):
    assert services.start_edge(_fabric(), 'h1', 12345678.9, tmp_path,
                               tmp_path / 'logs') == 'a child'
    (what, argv, log, options), = started
    assert what == 'virtco-edge on h1'
    assert argv[:2] == [process.script('virtco-edge'), '--config-file']
    assert log == tmp_path / 'logs' / 'edge-h1.log'
    assert options == {'namespace': 'ns-h1'}
    found = _read(argv[2])
    assert found['edge'] == {
        'host': 'h1', 'controller_url': 'http://172.30.0.1:8791',
        'uplink_dev': 'uplink0', 'link_egress_bps': '12345679',
        'link_ingress_bps': '12345679', 'wire_overhead_bytes': '0',
        'link_margin': '0', 'ports_backend': 'static',
        'ports_file': f'{tmp_path}/ports-h1.json',
        'state_dir': f'{tmp_path}/edge-h1', 'report_interval_s': '0.1',
        'leaf_min_bytes': str(8 * 1024 * 1024)}
    assert found['probe'] == {'enabled': 'True', 'address': '10.0.0.1',
                              'port': '7472'}
    # It is told its VMs from the start.
    assert json.loads((tmp_path / 'ports-h1.json').read_text()) == {
        'ports': [{'vm': 'v1', 'dev': 'tap1', 'mac': '0a:1',
                   'ips': ['10.1.0.1']}]}


def test_ports_of_a_host_are_replaced_as_a_whole(tmp_path):
    fabric = _fabric()
    services.write_ports(fabric, 'h0', tmp_path)
    assert [port['vm'] for port in json.loads(
        (tmp_path / 'ports-h0.json').read_text())['ports']] == ['v0', 'v2']
    fabric.vms.clear()
    services.write_ports(fabric, 'h0', tmp_path)
    assert (tmp_path / 'ports-h0.json').read_text() == '{"ports": []}'
    assert [path.name for path in tmp_path.iterdir()] == ['ports-h0.json']


def test_nova_is_told_its_hosts_and_speaks_by_a_pipe(started, tmp_path):
    assert services.start_nova(_fabric(), 7, {'slot1': 1}, tmp_path,
                               tmp_path / 'logs') == 'a child'
    (what, argv, log, options), line = started
    assert what == 'Nova'
    assert argv[1:] == ['-m', 'virtco_lab.emulation.nova_stack']
    assert log == tmp_path / 'logs' / 'nova.err'
    assert options == {
        'namespace': 'virtco-emu-abc123-control', 'piped': True,
        'own_log': tmp_path / 'logs' / 'nova.log', 'niceness': 10,
        'environment': {'TMPDIR': str(tmp_path)}}
    assert json.loads(line) == {
        'hosts': {'h0': 7, 'h1': 7},
        'controller_url': 'http://172.30.0.1:8791', 'listen': '172.30.0.1',
        'flavors': {'slot1': 1}, 'log_file': f'{tmp_path}/logs/nova.log'}


def test_the_live_page_is_on_loopback_beside_the_api_of_services():
    assert services.page_url() == 'http://127.0.0.1:8790'
    assert services.page_options(_fabric()) == {
        'api': {'ui': True, 'host': '127.0.0.1', 'port': 8790,
                'service_host': '172.30.0.1', 'service_port': 8791},
        'distributor': {'host': '172.30.0.1'}}


def test_a_free_port_of_this_machine_leads_to_the_live_page(started,
                                                            tmp_path):
    child, url = services.start_page(_fabric(), tmp_path)
    port = int(url.removeprefix('http://127.0.0.1:').removesuffix('/ui/'))
    assert port > 0 and child == 'a child'
    assert started == [('the way to the live page', [
        'socat', f'TCP-LISTEN:{port},bind=127.0.0.1,reuseaddr,fork',
        'EXEC:nsenter --net=/run/netns/virtco-emu-abc123-control socat STDIO '
        'TCP\\:127.0.0.1\\:8790'], tmp_path / 'page.log', {})]
