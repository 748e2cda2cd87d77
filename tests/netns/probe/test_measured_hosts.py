# SPDX-License-Identifier: Apache-2.0

"""The real controller and edge modules find out what the uplinks carry."""

import json
import subprocess

import pytest

from tests.netns import gear
from tests.netns.probe import harness
from virtco.measure import calibration
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import fabric as fabric_module
from virtco_lab.emulation import janitor
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import process
from virtco_lab.emulation import services

LINK_BPS = 50e6
HOSTS = ('h0', 'h1', 'h2', 'h3')


@pytest.fixture
def run():
    with janitor.run() as run:
        yield run


@pytest.fixture
def children():
    children = []
    yield children
    for child in reversed(children):
        child.stop()


@pytest.fixture
def fabric(run):
    fabric = fabric_module.Fabric(run)
    fabric.build(beds.Bed(dict.fromkeys(HOSTS, LINK_BPS)))
    yield fabric


def start(fabric, children, state, enabled=True):
    """A controller that measures without pause, and four edge modules."""
    config = state / 'controller.conf'
    config.write_text(f"""
[api]
host = {fabric.control_address}
port = {services.CONTROLLER_PORT}
[database]
connection = sqlite:///{state}/controller.sqlite
[probe]
interval_s = 0.1
freshness_s = 1
max_link_share = 1
enabled = {enabled}
""")
    children.append(process.Child(
        'controller', [harness.script('virtco-controller'), '--config-file',
                       str(config)], state / 'controller.log',
        namespace=fabric.control))
    for host in HOSTS:
        children.append(services.start_edge(fabric, host, LINK_BPS, state,
                                            state))


def wait(fabric, children, condition, what):
    process.wait_until(
        lambda: (hosts := _hosts(fabric)) is not None and condition(hosts),
        what, children, interval_s=0.3)


def _hosts(fabric):
    """``GET /v1/hosts`` by name, None while the controller starts."""
    answer = harness.get_json(namespaces.path(fabric.control),
                              services.controller_url(fabric) + '/v1/hosts')
    return answer and {host['host']: host for host in answer['hosts']}


def _measured(host, bps):
    return all(host[f'measured_{way}_bps'] is not None
               and abs(host[f'measured_{way}_bps'] / bps - 1) < 0.05
               for way in ('egress', 'ingress'))


@gear.full(
    'functional/controller/test_checks.py::'
    'test_a_slow_host_reaches_placements_and_the_alert with trains that are '
    'made up; netns/probe/test_trains.py::'
    'test_the_service_measures_what_the_controller_asks_for; '
    'netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink')
@pytest.mark.real_time(reason='times the packets of trains')
def test_a_halved_uplink_is_found_and_its_recovery_too(fabric, children,
                                                       tmp_path):
    fabric.set_uplink_rate('h2', LINK_BPS / 2)
    start(fabric, children, tmp_path)
    wait(fabric, children, lambda hosts: len(hosts) == 4 and all(
        _measured(hosts[host], LINK_BPS / 2 if host == 'h2' else LINK_BPS)
        for host in HOSTS), 'a measurement of all hosts')
    slow = _hosts(fabric)['h2']
    assert slow['rate_source'] == 'measured'
    assert slow['egress_bps'] == pytest.approx(LINK_BPS / 2, rel=0.05)

    # The edge shapes to what was measured by now; trains go past that.
    fabric.set_uplink_rate('h2', LINK_BPS)
    wait(fabric, children, lambda hosts: _measured(hosts['h2'], LINK_BPS),
         'the recovery of h2')

    fabric.set_uplink_rate('h1', LINK_BPS / 4)
    wait(fabric, children, lambda hosts: _measured(hosts['h1'], LINK_BPS / 4),
         'the slowness of h1')


def _command(fabric, *argv):
    """What a command of ``virtco`` prints, as JSON."""
    done = subprocess.run(
        ['nsenter', f'--net={namespaces.path(fabric.control)}',
         harness.script('virtco'), '--controller-url',
         services.controller_url(fabric), *argv, '-f', 'json'],
        capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@gear.full(
    'functional/controller/test_checks.py::'
    'test_the_level_of_a_shared_bottleneck with connections that are made '
    'up; '
    'unit/probe/test_probe.py::test_a_bulk_connection_is_counted_in_windows')
@pytest.mark.real_time(reason='times the packets of trains and TCP')
def test_an_operator_asks_what_tcp_gets(fabric, children, tmp_path):
    fabric.set_uplink_rate('h3', LINK_BPS / 2)
    start(fabric, children, tmp_path)
    wait(fabric, children, lambda hosts: len(hosts) == 4 and all(
        _measured(hosts[host], LINK_BPS / 2 if host == 'h3' else LINK_BPS)
        for host in HOSTS), 'a measurement of all hosts')
    paths = _command(fabric, 'measure', 'paths', 'h0', 'h1', 'h2', 'h3',
                     '--seconds', '2')
    for path, rate_bps in zip(paths, (LINK_BPS, LINK_BPS / 2)):
        expected_bps = calibration.tcp_bps(rate_bps)
        assert path['alone_bps'] == pytest.approx(expected_bps, rel=0.1)
        assert path['beside_bps'] == pytest.approx(expected_bps, rel=0.1)
        assert not path['shares_bottleneck']
    # Nobody else is there, and what was asked for changed no rate.
    found, = _command(fabric, 'measure', 'paths', 'h0', 'h1',
                      '--seconds', '2')
    assert found['connections'] < 0.1
    # A train may be too old to count after all the bulk connections.
    found = _hosts(fabric)['h0']
    assert found['measured_egress_bps'] is None or _measured(found, LINK_BPS)
