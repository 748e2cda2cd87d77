# SPDX-License-Identifier: Apache-2.0

"""A coflow that is announced for VMs that run already."""

from concurrent import futures
import contextlib
import json

import pytest

from tests.functional.controller import harness
from virtco import exception
from virtco.client import v1
from virtco.osc import shell
from virtco.wire import coflow_bodies as coflow_wire
from virtco.wire import group as group_wire

HINT = '[[0, 10000000], [0, 0]]'
BACK = [[0, 0], [5000000, 0]]


@pytest.fixture
def launched(make):
    tenant = make(constants={
        'virtco.objects.announcements.MAX_COFLOWS': 2}).tenant()
    hosts = tenant.launch(2, matrix=HINT, hosts={'h0': 1, 'h1': 1})
    return tenant, tenant.edges(hosts), hosts


def announce(tenant, name='model', tm=BACK, **values):
    return v1.Client(tenant.controller.url).call(
        coflow_wire.ANNOUNCE,
        'a', name, tm, project_id=tenant.project, **values).coflows


def names(edge):
    return {c['name'] for c in (edge.policy() or {}).get('classes', ())}


def refused(tenant, match, **values):
    with pytest.raises(exception.VirtcoException, match=match):
        announce(tenant, **values)


def test_it_is_shaped_until_it_is_declared_done(launched):
    tenant, edges, hosts = launched
    harness.wait_for(lambda: tenant.coflow()['arrival'], 'its begin')
    made, = announce(tenant)
    assert (made.name, made.size_bytes, made.n_flows) == (
        'model', 5e6, 1)
    assert 3500 < made.expires - tenant.coflow()['arrival'] < 3700
    back = edges[hosts[1]]
    harness.wait_for(lambda: names(back) == {'model'}, 'its class')
    harness.wait_for(lambda: tenant.coflow('model')['state'] == 'active',
                     'its begin')
    # Less is left of it.
    harness.wait_for(lambda: tenant.coflow('model')['rank'] == 0, 'its rank')
    tenant.call('PATCH', f'/v1/coflows/{made.id}', {'state': 'done'})
    harness.wait_for(lambda: not names(back), 'no class')
    assert tenant.coflow()['state'] == 'active'


def test_one_that_nobody_sends_expires(launched):
    tenant, edges, hosts = launched
    announce(tenant, expires_s=2)
    back = edges[hosts[1]]
    harness.wait_for(lambda: names(back) == {'model'}, 'its class')
    harness.wait_for(lambda: tenant.coflow('model')['state'] == 'done',
                     'its end')
    assert tenant.coflow('model')['measured_cct_s'] is None
    harness.wait_for(lambda: not names(back), 'no class')


def test_a_name_is_announced_anew_and_others_are_bounded(launched):
    tenant, _edges, _hosts = launched
    first, = announce(tenant)
    second, = announce(tenant, tm=[[0, 0], [7000000, 0]])
    assert [c['id'] for c in tenant.coflows() if c['name'] == 'model'] == [
        second.id] != [first.id]
    announce(tenant, name='data')
    refused(tenant, 'of the group: expected at most 2, got 3', name='more')
    tenant.call('PATCH', f'/v1/coflows/{second.id}', {'state': 'done'})
    announce(tenant, name='more')
    assert {c['name'] for c in tenant.coflows()} == {'a', 'data', 'more'}


def test_what_is_wrong_is_refused_and_nothing_is_written(launched):
    tenant, _edges, _hosts = launched
    refused(tenant, '2 rows.*3 rows', tm={
        'n': 3, 'flows': [[0, 2, 1000]]})
    refused(tenant, "name.*hint, got 'a'", name='a')
    refused(tenant, r'\[1\]\[0\]', tm=[[0, 0], [-1, 0]])
    refused(tenant, 'iterations.*1 in an announced coflow, got 2', tm=[
        {'name': 'x', 'iterations': 2, 'tm': BACK}])
    refused(tenant, 'expires_s', expires_s=1e9)
    with pytest.raises(exception.NotFound):
        v1.Client(tenant.controller.url).call(
            coflow_wire.ANNOUNCE,
            'a', 'model', BACK, project_id='another').coflows
    assert [c['name'] for c in tenant.coflows()] == ['a']


def test_servers_that_join_later_find_the_matrix_of_their_hint(make):
    tenant = make().tenant()
    tenant.launch(1, matrix=HINT, hosts={'h0': 1, 'h1': 1})
    announce(tenant)
    tenant.launch(1, 1, matrix=HINT, hosts={'h0': 1, 'h1': 1})
    assert 'matrix_differs' not in [e['kind'] for e in tenant.events()]
    harness.wait_for(lambda: {c['state'] for c in tenant.coflows()}
                     == {'active'}, 'both')


def test_the_command_line(launched, capsys):
    tenant, _edges, _hosts = launched

    def run(*argv):
        code = shell.main(['--controller-url', tenant.controller.url, *argv,
                           '--project', tenant.project, '-f', 'json'])
        out, err = capsys.readouterr()
        assert code == 0, err
        return json.loads(out)

    made, = run('coflow', 'create', 'model', json.dumps(BACK), '--group', 'a',
                '--expires', '60')
    assert made['name'] == 'model'
    clusters = run('group', 'clusters', 'a')
    assert [member['row'] for member in clusters] == [0, 1]
    assert clusters[0]['cluster'] != clusters[1]['cluster']


def test_a_killed_controller_keeps_coflows_and_ids_of_clusters(launched):
    tenant, _edges, _hosts = launched
    made, = announce(tenant)

    def clusters():
        return [member.cluster for member in v1.Client(
            tenant.controller.url).call(
                group_wire.CLUSTERS, 'a', project_id=tenant.project).members]

    before = clusters()
    tenant.controller.stop(9)
    tenant.controller.start()
    tenant.call = tenant.controller.call
    assert clusters() == before
    found = tenant.coflow('model')
    assert (found['id'], found['expires']) == (made.id, made.expires)


def test_two_at_once_are_one_after_the_other(launched):
    """Of one name one stays, however many processes announce it."""
    tenant, _edges, _hosts = launched

    def once(_):
        # Another one of the same name replaced it before it was shown.
        with contextlib.suppress(exception.Conflict):
            announce(tenant)

    with futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(once, range(8)))
    assert sorted(c['name'] for c in tenant.coflows()) == ['a', 'model']
