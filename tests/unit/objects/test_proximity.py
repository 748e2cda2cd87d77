# SPDX-License-Identifier: Apache-2.0

"""Which VMs of a group share a rack or a host, without saying which."""

import pytest

from tests.unit import made
from tests.unit import plain
from tests.unit import stored
from virtco import exception
from virtco.objects import proximity
from virtco.state import live_state
from virtco.topology import tree

PLANE = tree.Plane(roots=(tree.Node('pod', children=(
    tree.Node('r0', ('h0', 'h1')), tree.Node('r0', ('h2',)))),))


class Bench:
    def __init__(self, plane=PLANE, secret=None):
        self.database = stored.database()
        self.live = live_state.LiveState()
        stored.add(self.database, stored.group(n_vms=5), *(
            stored.member('p-a', row, host, instance_uuid=vm)
            for row, (vm, host) in enumerate(
                [('v0', 'h0'), ('v1', 'h1'), ('v2', 'h2'), ('v3', 'h9'),
                 (None, None)])))
        stored.add(self.database, stored.group('b'),
                   stored.member('p-b', 0, 'h0'))
        self.live.intake('h1', made.report(
            ports=[{'vm': 'v1', 'ips': ['10.0.0.1', '10.0.0.2']}]), 1.0)
        self.clusters = plain.Plain(proximity.Clusters(
            stored.state(self.database, self.live), lambda: plane))

    def of(self, level, group='a'):
        return [member['cluster'] for member in self.clusters.show(
            'p', group, level)['members']]


def test_members_of_a_rack_share_a_cluster():
    bench = Bench()
    first, second, third, unknown, none = bench.of('rack')
    assert first == second and none is None
    assert len({first, third, unknown}) == 3
    assert len(first) == 16 and int(first, 16) >= 0
    # The same name elsewhere is another rack, without a plane there is none.
    assert len({*Bench(plane=None).of('rack')[:4]}) == 4


def test_members_of_a_host_share_a_cluster():
    first, second, third, unknown, none = Bench().of('host')
    assert len({first, second, third, unknown}) == 4 and none is None


def test_clusters_can_be_compared_within_a_group_only():
    bench = Bench()
    assert bench.of('host')[0] not in bench.of('host', 'b')
    assert bench.of('host') == bench.of('host') == Bench().of('host')


def test_what_is_told_of_members():
    found = Bench().clusters.show('p', 'a', 'host')
    assert (found['group_id'], found['group_name'], found['level']) == (
        'p-a', 'a', 'host')
    told = [{key: value for key, value in one.items() if key != 'cluster'}
            for one in found['members']]
    assert told[1] == {'row': 1, 'instance_uuid': 'v1',
                       'display_name': 'vm1',
                       'addresses': ['10.0.0.1', '10.0.0.2']}
    assert told[4] == {'row': 4, 'instance_uuid': None,
                       'display_name': 'vm4', 'addresses': []}


def test_groups_are_known():
    bench = Bench()
    with pytest.raises(exception.NotFound):
        bench.of('rack', 'c')
