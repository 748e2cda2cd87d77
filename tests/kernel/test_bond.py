# SPDX-License-Identifier: Apache-2.0

"""A bond as uplink, and a bond's members as uplinks."""

import subprocess

import pytest

from tests.kernel import site as sites
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

# What the guest carries beside much else that runs on the machine.
LINK_BPS = 1.5e6
MEMBER_BPS = 0.6 * LINK_BPS
MEMBERS = ('ul0', 'ul1')
real_time = pytest.mark.real_time(reason='measures the rate of TCP transfers')


class Bonded:
    """h1 is joined to the core by a bond of two devices."""

    def __init__(self, directory, mode):
        subprocess.run(['modprobe', 'bonding', 'max_bonds=0'], check=True)
        self.directory = directory
        self.bed = bed = beds.Bed(2)
        self.netns = bed.ns('h1')
        self.edge = None
        self.ip('link', 'del', 'dev', 'uplink0')
        self.ip('link', 'add', 'bond0', 'type', 'bond', 'mode', mode,
                'miimon', '50')
        for number, dev in enumerate(MEMBERS):
            beds.run('ip', 'link', 'add', 'dev', f'cb{number}', 'netns',
                     bed.core, 'type', 'veth', 'peer', 'name', dev, 'netns',
                     self.netns)
            self.ip('link', 'set', 'dev', dev, 'master', 'bond0')
            beds.run('ip', 'link', 'set', 'dev', f'cb{number}', 'master',
                     'brc', 'up', netns=bed.core)
        self.ip('link', 'set', 'dev', 'bond0', 'master', 'brv', 'up')
        self.member, self.noise = bed.add_vm('h1'), bed.add_vm('h1')
        self.sink = bed.add_vm('h2')
        self.controller = controllers.Controller(self.netns)

    def ip(self, *command):
        beds.run('ip', *command, netns=self.netns)

    def start_edge(self, uplink_dev, link_bps=LINK_BPS):
        self.controller.set_policy(policies.PolicyBuilder(
            'h1', LINK_BPS).coflow(
                'C1', MEMBER_BPS, [(self.member, self.sink, 1)],
                ceil_bps=MEMBER_BPS).build().to_dict())
        self.edge = process.EdgeProcess(
            self.bed, 'h1', self.directory, link_bps, uplink_dev=uplink_dev,
            report_interval_s=0.5).start()
        self.controller.wait_report(
            lambda report: report['applied_generation'] == 1
            and report['health'] == 'ok' and len(report['ports']) == 2,
            sites.PATIENCE_S)

    def rates(self):
        return beds.measure([beds.Flow(self.member, self.sink, 5001),
                             beds.Flow(self.noise, self.sink, 5002)], 2, 4)

    def close(self):
        if self.edge is not None:
            print(self.edge.log())
            self.edge.stop()
        self.controller.stop()
        self.bed.close()


@pytest.fixture
def bonded(tmp_path):
    made = []

    def make(mode):
        made.append(Bonded(tmp_path, mode))
        return made[-1]

    yield make
    for each in made:
        each.close()


def _is_shaped(rates):
    managed, unmanaged = rates
    print('managed', managed, 'unmanaged', unmanaged)
    total = managed + unmanaged
    return total < LINK_BPS and managed / total == pytest.approx(
        MEMBER_BPS / LINK_BPS, abs=0.08)


@real_time
def test_a_bond_as_uplink_keeps_its_rates_over_a_lost_member(bonded):
    site = bonded('active-backup')
    site.start_edge('bond0')
    assert _is_shaped(site.rates())
    site.ip('link', 'set', 'dev', 'ul0', 'down')
    assert _is_shaped(site.rates())


@real_time
def test_a_member_as_uplink(bonded):
    site = bonded('active-backup')
    site.ip('link', 'set', 'dev', 'bond0', 'type', 'bond', 'active_slave',
            'ul1')
    site.start_edge('ul1')
    assert _is_shaped(site.rates())


def test_the_speed_follows_the_members(bonded):
    site = bonded('balance-xor')
    site.start_edge('bond0', link_bps=0)

    def is_bps(link_bps):
        site.controller.reports.clear()
        site.controller.wait_report(
            lambda report: report['link']['egress_bps'] == link_bps,
            sites.PATIENCE_S)

    is_bps(20e9)
    site.ip('link', 'set', 'dev', 'ul0', 'down')
    is_bps(10e9)
    site.ip('link', 'set', 'dev', 'ul0', 'up')
    is_bps(20e9)
