# SPDX-License-Identifier: Apache-2.0

"""What VMs sent each other before a hint told of it."""

import types

import msgspec
import pytest

from tests.unit import made
from tests.unit.state import test_live_state as known
from virtco.model import states
from virtco.state import addresses
from virtco.state import live_state
from virtco.state import unhinted
from virtco.wire import reports

#: VM x at h0 sends; y is at h1, z at h2, w beside x.
AT = {'x': 0, 'w': 0, 'y': 1, 'z': 2}
IPS = {vm: f'10.0.1.{i}' for i, vm in enumerate(AT)}


class Cloud:
    """Three hosts whose VMs nobody hinted."""

    def __init__(self):
        self.state = live_state.LiveState()
        self.totals = {}
        for host in (1, 2, 0):
            self.state.intake(f'h{host}', self.report(host), 0.0)

    def report(self, host, **values):
        return made.report(epoch='e', ports=[
            {'vm': vm, 'dev': f'tap-{vm}', 'ips': [IPS[vm]],
             'mac': '02:00:00:00:00:01'}
            for vm, place in AT.items() if place == host], **values)

    def send(self, now_s, **new_bytes):
        """VM x sent so many bytes more to each."""
        for vm, size in new_bytes.items():
            self.totals[vm] = self.totals.get(vm, 0) + size
        self.state.intake('h0', msgspec.structs.replace(
            self.report(0), peers=tuple(
                reports.PeerCounter('tap-x', IPS[vm], size, 0)
                for vm, size in self.totals.items())), now_s)

    def hint(self, **values):
        """That y sends to x 7 MB, x to y 5 MB, and x to z 3 MB."""
        self.state.load_groups(
            [types.SimpleNamespace(
                egress_cap_bps=None, ingress_cap_bps=None, addresses='',
                egress_limit_bps=None, ingress_limit_bps=None,
                group_id='g', row_index=row, host=f'h{AT[vm]}',
                state=states.MemberState.RUNNING, instance_uuid=vm)
             for row, vm in enumerate('yxz')],
            [known.stored(flows='[[0,1,7e6],[1,0,5e6],[1,2,3e6]]', **values)],
            {'g'})
        return self.state._groups.coflows['c']


def test_a_coflow_has_sent_what_came_before_its_hint():
    cloud = Cloud()
    cloud.send(1.0, y=1e6, w=1e6)
    cloud.send(2.0, y=1e6, z=4e6)
    tracked = cloud.hint()
    assert tracked.progress.sent_bytes.tolist() == [0, 2e6, 3e6]
    assert tracked.progress.excess_bytes == 1e6
    assert tracked.moved_s == 2.0
    assert tracked.progress.span.first_s[0] == 0.0
    assert tracked.progress.span.last_s[1] == 2.0
    # Once: what is loaded again has it already, and so has no other coflow.
    assert cloud.hint().progress.all_bytes == 6e6
    cloud.state.drop('c')
    assert cloud.hint().progress.all_bytes == 0


def test_an_unknown_size_begins_with_it():
    cloud = Cloud()
    cloud.send(1.0, y=2e6)
    tracked = cloud.hint(is_estimated=True)
    assert tracked.progress.sent_bytes.tolist() == [0, 2e6, 0]


@pytest.mark.parametrize('pause_s, sent_bytes', [(1.9, 3e6), (2.0, 2e6)])
def test_what_came_before_a_silence_is_of_something_else(pause_s, sent_bytes):
    cloud = Cloud()
    cloud.send(1.0, y=1e6)
    cloud.send(1.0 + pause_s, y=2e6)
    assert cloud.hint().progress.all_bytes == sent_bytes


@pytest.mark.parametrize('pause_s, sent_bytes', [(1.9, 1e6), (2.0, 0)])
def test_a_silence_before_the_hint_counts_too(pause_s, sent_bytes):
    cloud = Cloud()
    cloud.send(1.0, y=1e6)
    cloud.send(1.0 + pause_s)
    assert cloud.hint().progress.all_bytes == sent_bytes


def test_pairs_are_bounded(monkeypatch):
    monkeypatch.setattr(unhinted, 'MOST', 4)
    places = addresses.Addresses()
    places.learn('h0', [reports.Port('x', ips=('0', ))])
    places.learn('h1', [reports.Port(f'v{i}', ips=(f'{i}', ))
                        for i in range(1, 7)])
    found = unhinted.Unhinted(places)
    # So many are kept.
    found.take('h0', [('x', f'{i}', float(i)) for i in (1, 2, 3, 4)], 0.0,
               0.5)
    assert len(found.pop({'x', 'v1', 'v2', 'v3', 'v4'})) == 4
    found.take('h0', [('x', '5', 99.0)], 0.0, 1.0)
    found.take('h0', [('x', f'{i}', float(i)) for i in (1, 2, 4, 3)], 1.0,
               4.0)
    assert {pair: sent.sent_bytes for pair, sent in found.pop(
        {'x', 'v1', 'v2', 'v3', 'v4', 'v5', 'v6'}).items()} == {
            ('x', 'v4'): 4.0, ('x', 'v3'): 3.0}
