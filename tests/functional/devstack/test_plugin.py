# SPDX-License-Identifier: Apache-2.0

"""The DevStack plug-in, phase by phase, on real configuration files."""

import configparser
import subprocess
import sys

from oslo_config import cfg
from oslo_log import log
import pytest
import yaml

from edge_module import edge_options as edge_conf
from nova_filters import plugin_options as nova_conf
from tests.functional.devstack import node
from tests.functional.devstack.node import BIN_DIR
from tests.functional.devstack.node import NOVA_CONF
from tests.functional.devstack.node import PHASES
from tests.functional.devstack.node import ROOT
from virtco.api import policies
from virtco.cmd import controller as controller_cmd

#: Nothing but the plug-in decides these.
FULL = pytest.mark.full(
    reason='DevStack runs its phases in a shell for each',
    still='functional/devstack/test_plugin.py::'
          'test_clean_leaves_nothing_behind')


@pytest.fixture
def devstack(tmp_path):
    return node.DevStack(tmp_path)


def _ini(path):
    parser = configparser.ConfigParser(strict=False, interpolation=None)
    parser.read(path)
    return parser


def _values(path, option):
    return [line.partition('=')[2].strip()
            for line in path.read_text().splitlines()
            if line.partition('=')[0].strip() == option]


def test_nova_conf_holds_the_filter_the_weigher_and_the_client(devstack,
                                                               fake_edge):
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    nova = _ini(devstack.nova_conf)
    scheduler = nova['filter_scheduler']
    assert scheduler['enabled_filters'] == (
        'ComputeFilter,SameHostFilter,CoflowFilter')
    assert scheduler['weight_classes'] == (
        'nova.scheduler.weights.all_weighers,'
        'nova_filters.coflow_weigher.CoflowWeigher')
    assert sorted(_values(devstack.nova_conf, 'available_filters')) == [
        'nova.scheduler.filters.all_filters',
        'nova_filters.coflow_filter.CoflowFilter']
    assert nova['virtco']['controller_url'] == 'http://127.0.0.1:8791'
    assert nova['virtco']['username'] == 'virtco'
    assert nova['notifications']['notification_format'] == 'both'
    assert _values(devstack.nova_conf, 'driver') == ['messagingv2']
    cell = _ini(devstack.cell_conf)
    assert cell['notifications']['notification_format'] == 'both'
    assert cell['virtco']['controller_url'] == 'http://127.0.0.1:8791'
    assert _ini(devstack.tempest_conf)['compute-feature-enabled'][
        'scheduler_enabled_filters'].endswith(',CoflowFilter')


def test_what_nova_is_told_to_load_exists(devstack, fake_edge):
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    for name in (_values(devstack.nova_conf, 'available_filters')
                 + _values(devstack.nova_conf, 'weight_classes')[0].split(',')
                 ):
        if name.startswith('nova_filters.'):
            module, _, attribute = name.rpartition('.')
            subprocess.run([sys.executable, '-c',
                            f'from {module} import {attribute}'], check=True)


@pytest.mark.parametrize('variables', [
    {}, {'VIRTCO_AUTH_STRATEGY': 'noauth', 'VIRTCO_LINK_BPS': '1e8'},
    {'ENABLED_SERVICES': 'n-sch,n-cpu', 'VIRTCO_PORTS_BACKEND': 'static'},
    {'VIRTCO_USE_DATABASE': 'True', 'VIRTCO_ON_BAD_HINT': 'reject'},
])
def test_every_option_that_is_written_exists(devstack, fake_edge,
                                             variables):
    devstack.run('stack post-config', BIN_DIR=fake_edge, **variables)
    controller = controller_cmd.make_conf(
        ['--config-file', str(devstack.virtco_dir / 'virtco.conf')])
    policy = devstack.virtco_dir / 'policy.yaml'
    if controller.api.auth_strategy == 'keystone' and (
            devstack.virtco_dir / 'virtco.conf').exists():
        assert controller.find_file('policy.yaml') == str(policy)
        (name,) = yaml.safe_load(policy.read_text())
        assert name in {rule.name for rule in policies.list_rules()}
    _check_known(controller, devstack.virtco_dir / 'virtco.conf',
                 but={'keystone_authtoken'})
    edge = cfg.ConfigOpts()
    log.register_options(edge)
    edge_conf.register_opts(edge)
    edge(['--config-file', str(devstack.virtco_dir / 'virtco-edge.conf')])
    _check_known(edge, devstack.virtco_dir / 'virtco-edge.conf')
    assert edge.edge.uplink_dev == 'lo'
    nova = cfg.ConfigOpts()
    nova_conf.register_opts(nova)
    nova(['--config-file', str(devstack.nova_conf)])
    _check_known(nova, devstack.nova_conf, only={'virtco'})


def _check_known(conf, path, *, but=(), only=None):
    """Each option of the file is registered and its value is accepted."""
    credentials = {'username', 'password', 'auth_url', 'project_name'}
    ini = _ini(path)
    for section, options in ini.items():
        if section in but or (only and section not in only):
            continue
        group = conf if section == 'DEFAULT' else conf[section]
        inherited = set() if section == 'DEFAULT' else set(ini.defaults())
        for option in options.keys() - credentials - inherited:
            getattr(group, option)


def test_services_are_started_and_stopped(devstack):
    calls = devstack.run(*PHASES)
    assert ('install_package clang ethtool iproute2 libbpf-dev nftables'
            in calls)
    assert f'setup_develop {ROOT} osc,controller,edge' in calls
    assert 'create_service_user virtco admin' in calls
    assert ('get_or_create_endpoint coflow RegionOne http://127.0.0.1:8791'
            in calls)
    started = [call for call in calls if call.startswith('run_process')]
    assert started == [
        f'run_process virtco-controller {BIN_DIR}/virtco-controller '
        f'--config-file {devstack.virtco_dir}/virtco.conf',
        f'run_process virtco-edge {BIN_DIR}/virtco-edge '
        f'--config-file {devstack.virtco_dir}/virtco-edge.conf  root']
    assert ('curl -sf -g --noproxy * -o /dev/null '
            'http://127.0.0.1:8791/health') in calls
    assert not any(call.startswith('systemctl') for call in calls)
    assert (devstack.directory / 'data/virtco/virtco.sqlite').exists()


def test_a_controller_that_starts_is_waited_for(devstack, fake_edge):
    calls = devstack.run(*PHASES, BIN_DIR=fake_edge, UNHEALTHY=2)
    asked = [call.split()[0] for call in calls
             if call.startswith(('curl', 'systemctl'))]
    assert asked == ['curl', 'systemctl', 'curl', 'systemctl', 'curl']


@FULL
def test_a_controller_that_ended_is_not(devstack, fake_edge):
    done = devstack.attempt(*PHASES, BIN_DIR=fake_edge, UNHEALTHY=9,
                            ENDED='yes')
    assert done.returncode != 0
    assert 'the last lines of the log' in done.stdout
    assert 'virtco-controller ended' in done.stdout + done.stderr
    assert not any('run_process virtco-edge' in call
                   for call in devstack.calls.read_text().splitlines())


def test_clean_leaves_nothing_behind(devstack, fake_edge):
    before = _snapshot(devstack)
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    assert _snapshot(devstack) != before
    calls = devstack.run('unstack', 'clean', BIN_DIR=fake_edge)
    assert _snapshot(devstack) == before
    assert 'stop_process virtco-controller' in calls
    assert 'stop_process virtco-edge' in calls
    assert (f'virtco-edge --config-file {devstack.virtco_dir}/'
            'virtco-edge.conf --cleanup') in calls
    assert 'pip_uninstall virtco' in calls
    assert not devstack.virtco_dir.exists()
    assert not (devstack.directory / 'data' / 'virtco').exists()


@pytest.fixture
def fake_edge(devstack, monkeypatch):
    """Programs that write down how they are called."""
    directory = devstack.directory / 'bin'
    directory.mkdir()
    for name in ('virtco-edge', 'virtco-manage'):
        program = directory / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "$CALLS"\n')
        program.chmod(0o755)
    monkeypatch.setenv('CALLS', str(devstack.calls))
    return directory


def _snapshot(devstack):
    return [path.read_bytes() for path in (
        devstack.nova_conf, devstack.cell_conf, devstack.tempest_conf)]


NOVA_CONFS = {
    'empty': '\n[DEFAULT]\n',
    'no filters set': '\n[filter_scheduler]\nworkers = 2\n\n[DEFAULT]\n',
    'more filters': (
        '\n[filter_scheduler]\n# ours\navailable_filters = a.b.C\n'
        'host_subset_size = 1\navailable_filters = d.e.F\n'
        'enabled_filters = A, B ,C\nweight_classes = x.Y\n\n[api]\n'),
    'ours already': (
        '\n[filter_scheduler]\nenabled_filters = CoflowFilter,A\n'
        'available_filters = nova_filters.coflow_filter.CoflowFilter\n'),
    'versioned': '\n[notifications]\nnotification_format = versioned\n',
    'several drivers': (
        '\n[oslo_messaging_notifications]\ndriver = log\n'
        'driver = noop\n\n[virtco]\n\n[other]\na = 1\n'),
}


@FULL
@pytest.mark.parametrize('text, services', [
    *((text, 'n-sch,n-cpu') for text in NOVA_CONFS.values()),
    (NOVA_CONFS['empty'], 'n-cpu'), (NOVA_CONFS['several drivers'], 'rabbit,'
                                     'n-sch')])
def test_any_nova_conf_comes_back_byte_by_byte(devstack, fake_edge, text,
                                               services):
    devstack.nova_conf.write_text(text)
    before = _snapshot(devstack)
    variables = {'ENABLED_SERVICES': services, 'BIN_DIR': fake_edge,
                 'VIRTCO_AUTH_STRATEGY': 'noauth'}
    devstack.run(*PHASES, **variables)
    assert 'controller_url' in devstack.nova_conf.read_text()
    devstack.run('clean', **variables)
    assert _snapshot(devstack) == before


@FULL
def test_stacking_twice_changes_nothing_more(devstack, fake_edge):
    before = _snapshot(devstack)
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    once = _snapshot(devstack)
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    assert _snapshot(devstack) == once
    devstack.nova_conf.write_text(NOVA_CONF)
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    assert _snapshot(devstack) == once
    devstack.run('clean', BIN_DIR=fake_edge)
    assert _snapshot(devstack) == before


@FULL
def test_clean_keeps_what_others_changed_meanwhile(devstack, fake_edge):
    devstack.run(*PHASES, BIN_DIR=fake_edge)
    text = devstack.nova_conf.read_text()
    devstack.nova_conf.write_text(
        text.replace(',CoflowFilter', ',CoflowFilter,NewFilter')
        .replace('notification_format = both',
                 'notification_format = versioned')
        + '\n[later]\nkey = value\n')
    devstack.run('clean', BIN_DIR=fake_edge)
    nova = _ini(devstack.nova_conf)
    assert nova['filter_scheduler']['enabled_filters'] == (
        'ComputeFilter,SameHostFilter,NewFilter')
    assert nova['notifications']['notification_format'] == 'versioned'
    assert nova['later']['key'] == 'value'
    assert 'virtco' not in nova


@FULL
def test_a_compute_node_gets_the_edge_only(devstack, fake_edge):
    calls = devstack.run(*PHASES, ENABLED_SERVICES='n-cpu',
                         DISABLED_SERVICES='virtco-controller',
                         BIN_DIR=fake_edge)
    assert f'setup_develop {ROOT} osc,edge' in calls
    assert not any('controller' in call for call in calls
                   if call.startswith('run_process'))
    assert not (devstack.virtco_dir / 'virtco.conf').exists()
    assert 'CoflowFilter' not in devstack.nova_conf.read_text()
    assert not any(call.startswith('create_service_user') for call in calls)


@FULL
@pytest.mark.parametrize('sample, services, started', [
    ('all-in-one', 'n-api,n-sch,n-cpu', {'controller', 'edge'}),
    ('controller', 'n-api,n-sch,n-cpu', {'controller'}),
    ('compute', '', {'edge'})])
def test_a_sample_starts_what_it_says(devstack, fake_edge, tmp_path, sample,
                                      services, started):
    section, _, text = (ROOT / 'devstack' / 'samples' / f'{sample}.conf'
                        ).read_text().partition('[[local|localrc]]')
    assert all(line.startswith('#') for line in section.split('\n') if line)
    # DevStack sources it before the plug-in's settings.
    localrc = tmp_path / 'localrc'
    localrc.write_text(text.replace('192.0.2.10', '127.0.0.1')
                       .replace('192.0.2.11', '127.0.0.1'))
    variables = {'ENABLED_SERVICES': services} if services else {}
    calls = devstack.run(*PHASES, BIN_DIR=fake_edge, localrc=localrc,
                         **variables)
    assert {call.split()[1] for call in calls
            if call.startswith('run_process')} == {
                f'virtco-{name}' for name in started}
    assert ('CoflowFilter' in devstack.nova_conf.read_text()) == (
        'controller' in started)
    database = [call for call in calls if call.startswith('recreate_database')]
    assert bool(database) == (sample == 'controller')


@FULL
def test_disabled_altogether_it_does_nothing(devstack):
    before = _snapshot(devstack)
    calls = devstack.run(
        *PHASES, 'unstack', 'clean',
        DISABLED_SERVICES='virtco-controller,virtco-edge')
    assert calls == []
    assert _snapshot(devstack) == before


@FULL
def test_unstack_and_clean_before_stack_do_no_harm(devstack, fake_edge):
    before = _snapshot(devstack)
    devstack.run('unstack', 'clean', BIN_DIR=fake_edge)
    assert _snapshot(devstack) == before


@FULL
@pytest.mark.parametrize('variables, link_bps', [
    ({}, '1000000000'), ({'VIRTCO_LINK_BPS': '2e9'}, '2e9')])
def test_the_uplink_is_the_device_of_the_host_ip(devstack, fake_edge,
                                                 variables, link_bps):
    devstack.run('stack post-config', VIRTCO_UPLINK_DEV='',
                 BIN_DIR=fake_edge, **variables)
    edge = _ini(devstack.virtco_dir / 'virtco-edge.conf')['edge']
    assert edge['uplink_dev'] == 'lo'
    assert edge['link_egress_bps'] == link_bps
