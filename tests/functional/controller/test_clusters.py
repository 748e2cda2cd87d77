# SPDX-License-Identifier: Apache-2.0

"""A tenant learns which of its VMs share a rack or a host, and no more."""


import pytest

from tests.functional.controller import harness
from virtco import exception
from virtco.client import v1
from virtco.wire import group as group_wire
from virtco.wire import topology as topology_wire
from virtco_tenant.cast import demand
from virtco_tenant.cast import groups
from virtco_tenant.cast import peers as cast_peers

HOSTS = ('h0', 'h1', 'h2', 'h3')
_TM = '{"pattern": "ring", "n": 8, "flow_size": 1000}'


@pytest.fixture(scope='module')
def controller(tmp_path_factory):
    with harness.running(tmp_path_factory.mktemp('clusters')) as found:
        yield found


@pytest.fixture
def launched(controller):
    """Two VMs on each of four hosts, which are in two racks."""
    tenant = controller.tenant()
    v1.Client(controller.url).call(topology_wire.IMPORT, [{
        'name': 'front-end', 'nodes': [
            {'name': name, 'uplink': 1e9,
             'hosts': [tenant.host(host) for host in hosts]}
            for name, hosts in (('left', HOSTS[:2]), ('right', HOSTS[2:]))]}])
    hosts = tenant.launch(8, matrix=_TM, hosts=dict.fromkeys(HOSTS, 2))
    return tenant, hosts


def _clusters(tenant, level=None, group='a'):
    found = v1.Client(tenant.controller.url).call(
        group_wire.CLUSTERS, group, level=level, project_id=tenant.project)
    return [member.cluster for member in found.members], found


def _same(labels):
    return [[one == other for other in labels] for one in labels]


def test_members_of_a_rack_or_host_have_the_same_id(launched):
    tenant, hosts = launched
    racks, found = _clusters(tenant)
    assert _same(racks) == _same([host in HOSTS[:2] for host in hosts])
    assert found.level == 'rack'
    assert [member.row for member in found.members] == [*range(8)]
    by_host, _ = _clusters(tenant, 'host')
    assert _same(by_host) == _same(hosts)
    assert _clusters(tenant)[0] == racks


def test_nothing_of_hosts_or_other_groups_is_told(launched):
    tenant, _hosts = launched
    racks, found = _clusters(tenant)
    for word in (*map(tenant.host, HOSTS), 'left', 'right'):
        assert word not in str(found)
    tenant.launch(8, first=8, name='b', matrix=_TM, reservation_id='r-b',
                  hosts=dict.fromkeys(HOSTS, 4))
    others, _ = _clusters(tenant, group='b')
    assert not {*others} & {*racks}


@pytest.fixture
def own(launched, monkeypatch):
    """The group as a cast of its tenant sees it, and as the API shows it."""
    tenant, _hosts = launched
    labels, found = _clusters(tenant)
    monkeypatch.setenv('VIRTCO_URL', tenant.controller.url)
    monkeypatch.delenv('OS_AUTH_TYPE', raising=False)
    # Without keystone nobody is of a project.
    call = v1.Client.call

    def of_project(self, operation, /, *args, **given):
        if 'project_id' in operation.parameters:
            given['project_id'] = tenant.project
        return call(self, operation, *args, **given)

    monkeypatch.setattr(v1.Client, 'call', of_project)
    return groups.Group('a'), labels, found


def test_a_cast_asks_for_the_clusters_of_its_group(own):
    group, labels, found = own
    given = group.clusters()
    assert [given[member.display_name]
            for member in found.members] == labels
    assert [given[member.instance_uuid]
            for member in found.members] == labels


def test_a_cast_announces_what_it_sends_and_ends_it(launched, own):
    tenant, _hosts = launched
    group, _labels, found = own
    called = [frozenset((member.display_name, '192.0.2.7'))
              for member in found.members]
    members = [cast_peers.Member(str(row)) for row in range(8)]
    parts = cast_peers.plan('0', members, 0)
    left = {(called[int(src)], called[int(dst)]): size_bytes
            for (src, dst), size_bytes in demand.demand(
                '0', parts, 1e6).items()}
    left[called[0], frozenset(['stranger'])] = 1e6
    told = []
    with groups.announced(group, 'cast-x', lambda: left, told.append):
        coflow = harness.wait_for(lambda: next((
            c for c in tenant.coflows()
            if c['name'] == 'cast-x' and c['arrival']), None),
            'the coflow')
        # Each of seven takes all once.
        assert coflow['size_bytes'] == pytest.approx(7e6)
        assert coflow['expires'] - coflow['arrival'] <= groups.EXPIRES_S + 1
    assert tenant.coflow('cast-x')['state'] == 'done'
    assert not told


def test_a_cast_goes_on_without_the_controller(own):
    group, *_ = own
    told = []
    left = {(frozenset(['x']), frozenset(['y'])): 1.0}

    def refuse(name, now):
        raise exception.ControllerUnavailable(url='u', why='it is away')

    group.announce = refuse
    with groups.announced(group, 'cast-x', lambda: left, told.append):
        harness.wait_for(lambda: told, 'a line')
    assert len(told) == 1


def test_wrong_groups_and_levels_are_refused(launched):
    tenant, _hosts = launched
    with pytest.raises(exception.NotFound):
        _clusters(tenant, group='none')
    with pytest.raises(exception.Invalid, match='one of host, rack'):
        _clusters(tenant, 'pod')
    with pytest.raises(exception.NotFound):
        v1.Client(tenant.controller.url).call(group_wire.CLUSTERS, 'a',
                                              'another')
