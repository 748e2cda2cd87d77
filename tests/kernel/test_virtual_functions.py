# SPDX-License-Identifier: Apache-2.0

"""Virtual functions of a simulated card have the rates of a policy."""

import json
import subprocess
import time
import types

import pytest

from edge_module import virtual_functions
from edge_module.ports import kinds
from tests.kernel import site as sites
from tests.netns.edge import bed as beds
from tests.netns.edge import controller as controllers
from tests.netns.edge import policies
from tests.netns.edge import process

LINK_BPS = 1e9
CARD = 'netdevsim/netdevsim7'
N_FUNCTIONS = 4
# Guaranteed to traffic without a coflow and to the host; a port may have 15
# Mbit/s of it, and 30 for control packets.
DEFAULT_BPS = 20e6

pytestmark = pytest.mark.skipif(
    subprocess.run(['modprobe', 'netdevsim'], check=False).returncode != 0,
    reason='this kernel has no netdevsim')


class Card:
    """A card whose functions' representors are ports of h1's bridge."""

    def __init__(self, directory):
        self.bed = beds.Bed(1)
        self.netns = self.bed.ns('h1')
        self.sysfs('bus/netdevsim/new_device', '7 1')
        self.sysfs(f'bus/{CARD.replace("/", "/devices/")}/sriov_numvfs',
                   N_FUNCTIONS)
        self.devlink('dev', 'eswitch', 'set', CARD, 'mode', 'switchdev')
        ports = json.loads(self.devlink('-j', 'port', 'show'))['port']
        self.vms = [types.SimpleNamespace(
            uuid=f'vm{number}', host='h1', ip=f'10.77.0.{number}',
            dev=ports[f'{CARD}/{128 + number}']['netdev'],
            port=lambda number=number: self._port(number))
            for number in range(N_FUNCTIONS)]
        for vm in self.vms:
            beds.run('ip', 'link', 'set', 'dev', vm.dev, 'master', 'brv',
                     'up', netns=self.netns)
        self.bed.vms += self.vms
        self.controller = controllers.Controller(self.netns)
        self.edge = process.EdgeProcess(self.bed, 'h1', directory, LINK_BPS,
                                        user='nobody', helper_user='daemon')
        state = directory / 'state'
        state.mkdir()
        for path in (directory, *directory.parents[:3], state):
            path.chmod(0o777)

    def _port(self, number):
        vm = self.vms[number]
        return {'vm': vm.uuid, 'dev': vm.dev, 'ips': [vm.ip]}

    def sysfs(self, path, value):
        beds.run('sh', '-c', f'echo {value} > /sys/{path}', netns=self.netns)

    def devlink(self, *arguments):
        return beds.run('devlink', *arguments, netns=self.netns)

    def rates(self):
        """Rate of each function and group, in Mbit/s, with its group."""
        found = json.loads(self.devlink('-j', 'port', 'function', 'rate',
                                        'show'))['rate']
        return {name.removeprefix(f'{CARD}/'): (
            rate.get('tx_share', 0) / 125e3, rate.get('tx_max', 0) / 125e3,
            rate.get('parent', '')) for name, rate in found.items()}

    def set_policy(self, generation, coflows, ttl_s=60.0):
        """Offer a policy of (rate, ceil, numbers of the senders) each."""
        builder = policies.PolicyBuilder('h1', LINK_BPS, generation,
                                         DEFAULT_BPS, ttl_s)
        for index, (rate_bps, ceil_bps, numbers) in enumerate(coflows):
            sink = types.SimpleNamespace(host='h2', ip=f'10.77.1.{index}')
            builder.coflow(f'C{index}', rate_bps, [
                (self.vms[number], sink, 1) for number in numbers],
                ceil_bps=ceil_bps)
        self.controller.set_policy(builder.build().to_dict())

    def wait_rates(self, limit_s=sites.PATIENCE_S, **wanted):
        wanted = {name.removeprefix('vf'): rate
                  for name, rate in wanted.items()}
        found = {}

        def is_so():
            found.clear()
            found.update(self.rates())
            return found == wanted

        try:
            beds.wait_for(is_so, limit_s, 'rates')
        except AssertionError:
            print('stands:', found)
            raise

    def close(self):
        print(self.edge.log())
        self.edge.stop()
        self.controller.stop()
        self.sysfs('bus/netdevsim/del_device', 7)
        self.bed.close()


@pytest.fixture
def card(tmp_path):
    made = Card(tmp_path)
    yield made
    made.close()


FREE = (0, 0, '')


def test_rates_follow_a_policy_fade_with_it_and_go_at_clean_up(card):
    card.devlink('port', 'function', 'rate', 'set', f'{CARD}/131', 'tx_max',
                 '50mbit')
    others = (0, 50, '')
    card.set_policy(1, [(200e6, 300e6, (0, 1)), (90e6, 1e9, (2,)),
                        (10e6, 20e6, (3,))])
    card.edge.start()
    wanted = {
        'virtco-10': (200, 345, ''), 'virtco-12': (90, 0, ''),
        'vf128': (100, 345, 'virtco-10'), 'vf129': (100, 345, 'virtco-10'),
        'vf130': (90, 0, 'virtco-12'), 'vf131': others}
    card.wait_rates(**wanted)
    report = card.controller.wait_report(
        lambda report: len(report['ports']) == N_FUNCTIONS
        and any(virtual_functions.OTHERS in port['notes']
                for port in report['ports']), sites.PATIENCE_S)
    notes = {port['vm']: port['notes'] for port in report['ports']}
    assert notes == {
        'vm0': [kinds.REPRESENTOR], 'vm1': [kinds.REPRESENTOR],
        'vm2': [kinds.REPRESENTOR],
        'vm3': [kinds.REPRESENTOR, virtual_functions.OTHERS]}
    card.set_policy(2, [(50e6, 60e6, (0,)), (80e6, 90e6, (1,)),
                        (30e6, 40e6, (0, 2))])
    start_s = time.monotonic()
    card.wait_rates(**{
        'virtco-1': (65, 0, ''), 'virtco-12': (80, 135, ''),
        'virtco-14': (15, 85, ''), 'vf128': (65, 145, 'virtco-1'),
        'vf129': (80, 135, 'virtco-12'), 'vf130': (15, 85, 'virtco-14'),
        'vf131': others})
    print('rates after', time.monotonic() - start_s, 's')
    assert not card.edge.once('--check').returncode
    # What another program takes back is set again by the next comparison.
    card.devlink('port', 'function', 'rate', 'set', f'{CARD}/129', 'tx_max',
                 '0')
    shown = card.edge.once('--check', check=False).stdout
    assert 'rate of a virtual function' in shown
    # At the end of its time to live nothing limits any more.
    card.set_policy(3, [(200e6, 300e6, (0, 1))], ttl_s=3)
    card.wait_rates(**{
        'virtco-10': (200, 345, ''), 'vf128': (100, 345, 'virtco-10'),
        'vf129': (100, 345, 'virtco-10'), 'vf130': FREE, 'vf131': others})
    card.controller.stop()
    beds.wait_for(lambda: card.rates()['128'][1:] == (0, 'virtco-10'),
                  sites.PATIENCE_S, 'an end of limits')
    card.edge.stop()
    assert 'rates of virtual functions' in card.edge.once('--cleanup').stdout
    assert card.rates() == {'128': FREE, '129': FREE, '130': FREE,
                            '131': others}
    assert 'virtual' not in card.edge.once('--cleanup').stdout
