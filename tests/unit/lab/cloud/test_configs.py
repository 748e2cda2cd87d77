# SPDX-License-Identifier: Apache-2.0

"""The cloud's configuration files, without a cloud."""

import configparser
from importlib import metadata
import json
import os
import pathlib

import pytest

from virtco_lab.cloud import command
from virtco_lab.cloud import configs
from virtco_lab.cloud import layout as layouts

ROOT = pathlib.Path(__file__).parents[4]
LAYOUT = layouts.Layout('abc123', '172.30.0.1', ('compute1', 'compute2'), 2,
                        5e7, 42)


def _read(groups):
    config = configparser.RawConfigParser(strict=False)
    config.optionxform = str
    config.read_string(configs.ini(groups))
    return config


def test_an_option_of_many_values_is_written_once_for_each():
    assert configs.ini({'a': {'x': [1, 2], 'y': 'z'}}) == (
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


def test_neutron_finds_the_drivers_it_is_configured_with(tmp_path):
    for name, text in configs.mechanism().items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    found, = metadata.distributions(path=[str(tmp_path)])
    driver, = found.entry_points.select(group='neutron.ml2.mechanism_drivers')
    assert driver.name == _read(
        configs.neutron(LAYOUT, 'db', 'rabbit'))['ml2']['mechanism_drivers']
    assert (ROOT / f'lab/{driver.module.replace(".", "/")}.py').exists()
    assert 'neutron' not in (ROOT / 'setup.cfg').read_text().partition(
        '[entry_points]')[2]


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
