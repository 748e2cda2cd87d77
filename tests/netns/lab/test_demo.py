# SPDX-License-Identifier: Apache-2.0

"""Hints, Nova, controller, edges and TCP together: VirtCO's Fig. 1."""

import pathlib

import pytest

from tests.netns import gear
from virtco_lab.emulation import bed as beds
from virtco_lab.emulation import namespaces
from virtco_lab.emulation import runner
from virtco_lab.emulation import scenario
from virtco_lab.emulation import testbed as testbed_module

RATE_BPS = 40e6
SLOTS = 2
MEMORY = pathlib.Path('/dev/shm')
UNIT_S = 1.5
TOLERANCE = 0.1
real_time = pytest.mark.real_time(reason='times coflows of real TCP')


class _Observer(runner.Observer):
    def __init__(self):
        self.steps, self.counts, self.bytes = [], [], []

    def step(self, what):
        self.steps.append(what)

    def count(self, *some):
        self.counts.append(some)

    def moved(self, *some):
        self.bytes.append(some)


@pytest.fixture
def make_testbed(tmp_path):
    made = []

    def make(n_hosts, slow_host=None):
        testbed = testbed_module.Testbed(beds.Bed(
            {host: RATE_BPS / (1 + (host == slow_host))
             for host in beds.host_names(n_hosts)}, link_bps=RATE_BPS,
            slots=SLOTS, has_nova=True, logs=tmp_path / 'logs'))
        made.append(testbed)
        testbed.build()
        testbed.start_services()
        assert testbed.wait_measured()
        return testbed

    yield make
    for testbed in made:
        testbed.close()
        assert list(MEMORY.glob(
            f'{namespaces.PREFIX}-{testbed.fabric.run}*')) == []


@gear.full(
    'netns/lab/test_tutorial.py::test_tutorial for controller and edges, '
    'netns/lab/test_fabric.py::test_many_flows_end_when_fair_shares_say for '
    'the fabric, functional/nova/test_lifecycle.py for Nova')
@real_time
def test_fig1_completes_as_in_the_paper(make_testbed):
    """4.5 : 3.0 : 2.5, and deciding together beats deciding apart."""
    testbed = make_testbed(3)
    workload = scenario.fig1(RATE_BPS, SLOTS, UNIT_S)
    observer = _Observer()
    done = []
    for scheme in workload.schemes:
        done.append(runner.run_emulated(
            testbed, workload, scheme, observer))
    apart, traffic_aware, joint = [scheme.hosts['fig1'] for scheme in done]
    assert len(set(apart)) == 3
    assert traffic_aware[0] == traffic_aware[1] != traffic_aware[2]
    assert joint[1] == joint[2] != joint[0]
    means = [scheme.mean_measured_s / UNIT_S for scheme in done]
    assert means[0] > means[1] > means[2]
    assert means == pytest.approx(workload.paper_means, rel=TOLERANCE)
    assert means == pytest.approx([
        scheme.mean_predicted_s / UNIT_S for scheme in done], rel=TOLERANCE)
    total = sum(c.size_bytes for c in workload.groups[0].coflows)
    arrived, expected = observer.bytes[-1]
    assert 0 < arrived <= expected == pytest.approx(total, rel=1e-3)
    assert testbed.fabric.vms == {}
    assert observer.steps.count('placing 3 VMs') == observer.steps.count(
        'deleting 3 VMs') == 3
    assert {total for _, _, total in observer.counts} == {3}


@gear.full(
    'functional/controller/test_checks.py::'
    'test_a_slow_host_reaches_placements_and_the_alert; '
    'netns/probe/test_trains.py::'
    'test_trains_go_past_the_classes_of_the_uplink')
@real_time
def test_plans_avoid_an_uplink_that_was_halved_silently(make_testbed):
    testbed = make_testbed(3, slow_host='h1')
    rates = {rate.host: rate for rate in testbed.host_rates()}
    assert rates['h1'].egress_bps == pytest.approx(RATE_BPS / 2, rel=0.1)
    assert rates['h1'].ingress_bps == pytest.approx(RATE_BPS / 2, rel=0.1)
    for host in ('h0', 'h2'):
        assert rates[host].egress_bps == pytest.approx(RATE_BPS, rel=0.1)
    usable = testbed.usable_rates_bps()
    assert usable['h1'] < 0.6 * usable['h0']
    workload = scenario.fig1(RATE_BPS, SLOTS, 0.2)
    done = runner.run_emulated(testbed, workload, workload.schemes[-1],
                               runner.Observer())
    assert set(done.hosts['fig1']) == {'h0', 'h2'}
