# SPDX-License-Identifier: Apache-2.0

"""What the API answers, asked through falcon over all rooms."""

import json
from urllib import parse
import uuid

import falcon
import pytest

from tests.unit import made
from tests.unit import stored
from tests.unit.api import service
from virtco import app
from virtco import exception
from virtco.api import health_report as health
from virtco.api.handlers import topology_routes
from virtco.db import leader
from virtco.db import models
from virtco.model import states
from virtco.topology import tree
from virtco.wire import edge_policy

TENANT = {'role': 'member,reader'}
PAIR = [[0, 1], [0, 0]]


# Coflows.

def test_a_coflow_is_shown_with_its_members(api):
    found = api.get('/v1/coflows/c-p-a')
    assert found['size_bytes'] == 175 and found['hosts'] == ['h0', 'h1', 'h2']
    assert [(one['row'], one['host'], one['planned_host'])
            for one in found['members']] == [
        (row, f'h{row}', f'planned{row}') for row in range(3)]
    assert found['rank'] == 0 and found['rate_bps'] > 0
    assert found['bottleneck']['host'] in found['hosts']
    assert found['waits_for'] == [] and found['n_before'] == 0
    classes = {one['host']: one for one in found['classes']}
    assert classes['h0'].items() <= (api.get('/v1/hosts/h0')['classes'][0]
                                     | {'host': 'h0'}).items()
    assert api.get('/v1/coflows/c-p-a', **TENANT)['classes'] == []
    listed, = api.get('/v1/coflows')['coflows']
    assert listed['bottleneck'] == found['bottleneck']
    assert listed['rank'] == 0 and 'classes' not in listed


def test_a_tenant_hears_of_no_hypervisor(own):
    own.add(stored.group('b', why='h2 it is', bottleneck='h2 egress'),
            stored.coflow('p-b', cct_s=2.0, why='expired'),
            stored.member('p-b', 0, 'h2', planned_host='h1'),
            *(models.Event(project_id='p', group_name='b', kind=kind,
                           detail=kind, created_at=1.0, instance_uuid='')
              for kind in ('hint_ignored', 'h1_away', 'neutral',
                           'wish_refused')))
    for path in ('/v1/coflows/c-p-b', '/v1/coflows/c-p-a', '/v1/coflows',
                 '/v1/events', '/v1/groups/a/tree'):
        assert service.hosts_in(own.get(path)), path
        told = own.get(path, **TENANT)
        assert not service.hosts_in(told), path
    mine, all_of = (own.get('/v1/coflows/c-p-b', **caller)
                    for caller in (TENANT, {}))
    hidden = {'hosts': [], 'plan_notes': '', 'bottleneck': None,
              'planned_bottleneck': None, 'waits_for': []}
    assert {name: mine[name] for name in hidden} == hidden
    member, = mine['members']
    assert member == all_of['members'][0] | {'host': None,
                                             'planned_host': None}
    assert all_of['planned_bottleneck']['port'] == 'h2'
    assert mine['why'] == all_of['why'] == 'planned CCT 2 s; expired'
    kinds = ['hint_ignored', 'neutral', 'wish_refused']
    for events in (mine['events'], own.get('/v1/events', **TENANT)['events']):
        assert sorted(event['kind'] for event in events) == kinds
        assert 'neutral' not in [event['detail'] for event in events]
    for events in (all_of['events'], own.get('/v1/events')['events']):
        assert len(events) == 4
        assert 'neutral' in [event['detail'] for event in events]
    assert mine | {name: all_of[name] for name in (
        *hidden, 'members', 'events') if name in all_of} == all_of


def test_coflows_of_others_have_no_names(own):
    own.add(stored.group('b', 'q'), stored.coflow(
        'q-b', project_id='q', name='theirs', size_bytes=1.75,
        tm='[[0,1,1],[0,2,0.5],[1,2,0.25]]'),
        *(stored.member('q-b', row, f'h{row}') for row in range(3)))
    own.rooms.state.invalidate()
    own.rooms.decide.loop.run_once()
    assert own.get('/v1/coflows/c-p-a')['waits_for'] == ['c-q-b']
    mine = own.get('/v1/coflows/c-p-a', **TENANT)
    assert (mine['waits_for'], mine['n_before']) == ([], 1)
    # What is not shown in a list is not shown empty either.
    listed, = own.get('/v1/coflows', **TENANT)['coflows']
    assert listed.keys() < mine.keys() and 'waits_for' not in listed
    assert not {'members', 'events'} & listed.keys()


def test_lists_are_of_a_project_and_a_state(own):
    own.add(stored.group('b', 'q'), stored.coflow(
        'q-b', project_id='q', state=states.CoflowState.DONE))

    def listed(query='', **caller):
        return [one['id'] for one in own.get(
            '/v1/coflows' + query, **caller)['coflows']]

    assert sorted(listed()) == ['c-p-a', 'c-q-b']
    assert listed(**TENANT) == listed('?project_id=p') == ['c-p-a']
    assert listed('?project_id=q') == listed('?state=done') == ['c-q-b']
    assert listed('?state=done', **TENANT) == []
    own.add(stored.coflow('q-b', id='over', project_id='q',
                          state=states.CoflowState.RETIRED))
    assert listed('?project_id=q') == ['c-q-b', 'over']
    assert listed('?project_id=q&retired=False') == ['c-q-b']
    assert listed('?retired=False&state=retired') == ['over']
    newest, = listed('?limit=1')
    second, oldest = listed(f'?limit=2&marker={newest}')[::-1]
    assert {newest, second, oldest} == {'c-p-a', 'c-q-b', 'over'}
    assert listed(f'?marker={oldest}') == []
    assert own.refused(404, 'GET', '/v1/coflows?marker=c-q-b', **TENANT)
    for limit in (0, 5001):
        error = own.refused(400, 'GET', f'/v1/coflows?limit={limit}')
        assert error['field'] == 'limit'
    error = own.refused(400, 'GET', '/v1/coflows?state=asleep')
    assert (error['field'], error['value']) == ('state', '"asleep"')
    assert 'active' in error['limit']


def test_a_matrix_is_registered_for_its_project(own):
    matrix = {'name': 'm', 'tm': PAIR}
    found = own.send('POST', '/v1/coflows', matrix, **TENANT)
    assert found.status_code == 201
    assert (found.json['project_id'], found.json['name'],
            found.json['state']) == ('p', 'm', 'registered')
    other = own.send('POST', '/v1/coflows', matrix | {'project_id': 'q'})
    assert other.json['project_id'] == 'q'
    error = own.refused(400, 'POST', '/v1/coflows', matrix, project='')
    assert error['field'] == 'project_id'
    assert own.refused(400, 'POST', '/v1/coflows', matrix | {'x': 1})
    # It has no VMs that would make it done.
    path = '/v1/coflows/' + found.json['id']
    assert own.refused(400, 'PATCH', path, {'state': 'done'})
    deleted = own.send('DELETE', path, **TENANT)
    assert (deleted.status_code, deleted.text) == (204, '')
    assert own.refused(404, 'GET', path)


def test_a_coflow_is_changed(own):
    found = own.send('PATCH', '/v1/coflows/c-p-a',
                     {'weight': 2.5, 'priority_class': -3})
    assert found.status_code == 200
    assert (found.json['weight'], found.json['priority_class'],
            found.json['state']) == (2.5, -3, 'active')
    done = own.send('PATCH', '/v1/coflows/c-p-a', {'state': 'done'}, **TENANT)
    assert (done.json['state'], done.json['hosts']) == ('done', [])
    assert own.refused(400, 'PATCH', '/v1/coflows/c-p-a', {})


def test_coflows_are_announced(own):
    body = {'name': 'next', 'tm': [[0, 7, 0], [0, 0, 0], [5, 0, 0]]}
    path = '/v1/groups/a/coflows'
    found = own.send('POST', path, body, **TENANT)
    assert found.status_code == 201
    coflow, = found.json['coflows']
    assert (coflow['name'], coflow['size_bytes'], coflow['hosts']) == (
        'next', 12.0, [])
    assert coflow['expires'] == service.NOW_S + 3600
    soon, = own.send('POST', path, body | {
        'name': 'soon', 'expires_s': 7}).json['coflows']
    assert soon['expires'] == service.NOW_S + 7
    assert soon['hosts'] == ['h0', 'h1', 'h2']
    for expires_s in (0.5, 7 * 86400):
        late, = own.send('POST', path, body | {
            'name': 'late', 'expires_s': expires_s}).json['coflows']
        assert late['expires'] == service.NOW_S + expires_s
    for expires_s in (0, 7 * 86400 + 1):
        assert own.refused(400, 'POST', path, body | {
            'expires_s': expires_s})['field'] == 'expires_s'
    # Groups of other projects are not there.
    assert own.refused(404, 'POST', path, body, role='member,reader',
                       project='q')
    assert own.refused(404, 'POST', path + '?project_id=q', body)


def test_an_announcement_that_another_one_replaced_at_once(own, monkeypatch):
    coflows = own.rooms.objects.coflows

    def show(coflow_id, _schedule):
        coflows.delete(coflow_id)
        raise exception.NotFound(what='Coflow', id=coflow_id)

    monkeypatch.setattr(coflows, 'show', show)
    told = own.refused(409, 'POST', '/v1/groups/a/coflows', {
        'name': 'next', 'tm': [[0, 7, 0], [0, 0, 0], [5, 0, 0]]})
    assert told['code'] == 'virtco.conflict' and "'next'" in told['detail']


# Advice for a group.

def test_a_tree_is_asked_for(api):
    path = '/v1/groups/a/tree'
    found = api.get(path)
    assert (found['operation'], found['root'], found['size_bytes'],
            found['matrix']) == ('broadcast', 0, 8e6, 'constant')
    other = api.get(path + '?operation=reduce&root=2&size_bytes=1')
    assert (other['operation'], other['root'], other['size_bytes']) == (
        'reduce', 2, 1.0)
    assert api.get(path + '?size_bytes=1e15')['size_bytes'] == 1e15
    mine = api.get(path, **TENANT)
    assert [one['host'] for one in mine['members']] == [None] * 3
    assert mine['members'][1] == found['members'][1] | {'host': None}


@pytest.mark.parametrize('query', [
    'operation=gather', 'root=-1', 'root=x', 'root=3', 'size_bytes=0.9',
    'size_bytes=1.1e15', 'size_bytes=nan', 'matrix=guess'])
def test_a_tree_that_cannot_be(api, query):
    api.refused(400, 'GET', '/v1/groups/a/tree?' + query)


def test_a_mapping_is_asked_for(api):
    path = '/v1/groups/a/mapping'
    for body in ({'tm': [[0, 5, 0], [0, 0, 0], [0, 0, 0]]},
                 {'all_reduce_bytes': 8e6}, {}):
        found = api.send('POST', path, body).json
        assert [one['host'] for one in found['members']] == ['h0', 'h1', 'h2']
        mine = api.send('POST', path, body, **TENANT).json
        assert not service.hosts_in(mine)
    assert api.refused(400, 'POST', path, {'matrix': 'guess'})


def test_clusters_are_racks_unless_hosts_are_asked_for(api):
    found = api.get('/v1/groups/a/clusters', **TENANT)
    assert found['level'] == 'rack' and not service.hosts_in(found)
    assert api.get('/v1/groups/a/clusters?level=host')['level'] == 'host'
    assert api.refused(400, 'GET', '/v1/groups/a/clusters?level=row')


# Projects, profiles and applications.

def test_a_project_has_a_class_and_a_weight(own):
    changed = own.send('PATCH', '/v1/projects/p',
                       {'weight': 3, 'priority_class': -1}).json
    assert (changed['project_id'], changed['weight'],
            changed['priority_class']) == ('p', 3, -1)
    assert own.get('/v1/projects/p')['weight'] == 3
    assert [one['project_id'] for one
            in own.get('/v1/projects')['projects']] == ['p']
    assert own.refused(400, 'PATCH', '/v1/projects/p', {'weight': 0})
    error = own.refused(400, 'PATCH', '/v1/projects/' + 'x' * 256,
                        {'weight': 1})
    assert error['field'] == 'project_id'


@pytest.fixture
def learned(own):
    hour = int(service.NOW_S) // 3600
    own.add(*(models.ProfileHour(
        group_id=f'{project}-a', hour=hour, project_id=project,
        group_name='a', app='sort', n_vms=3, pairs=json.dumps(
            [[0, 1, size_bytes], [1, 2, 5.0]]))
        for project, size_bytes in (('p', 7.0), ('q', 9.0))))
    return own


def test_what_vms_sent_is_their_project_s(learned):
    def of(path, field, **caller):
        return sorted(one['project_id'] for one in learned.get(
            path, **caller)[field])

    for path, field in (('/v1/profiles', 'profiles'), ('/v1/apps', 'apps')):
        assert of(path, field) == ['p', 'q']
        assert of(path, field, **TENANT) == ['p']
        assert of(path + '?project_id=q', field) == ['q']
    assert learned.get('/v1/profiles/a', **TENANT)['size_bytes'] == 12
    assert learned.get('/v1/profiles/a?project_id=q')['size_bytes'] == 14
    assert learned.refused(404, 'GET', '/v1/profiles/b')


def test_an_application_is_the_caller_s_own(learned):
    found = learned.get('/v1/apps/sort', **TENANT)
    assert (found['project_id'], found['n_vms']) == ('p', 3)
    assert learned.get('/v1/apps/sort?project_id=q')['project_id'] == 'q'
    for n_vms in (2, 100_000):
        assert learned.get(
            f'/v1/apps/sort?n_vms={n_vms}')['n_vms'] == n_vms
    for n_vms in (1, 100_001, 'x'):
        assert learned.refused(400, 'GET', f'/v1/apps/sort?n_vms={n_vms}')
    assert learned.refused(400, 'GET', '/v1/apps/sort',
                           project='')['field'] == 'project_id'
    deleted = learned.send('DELETE', '/v1/apps/sort', **TENANT)
    assert (deleted.status_code, deleted.text) == (204, '')
    assert learned.refused(404, 'GET', '/v1/apps/sort')
    assert learned.get('/v1/apps/sort?project_id=q')


@pytest.mark.parametrize('name', ['team/sort', 'a b', 'ü%'])
def test_an_application_may_have_any_name(own, name):
    own.add(models.ProfileHour(
        group_id='g', hour=1, project_id='p', group_name=name, app=name,
        n_vms=2, pairs='[[0,1,7]]'))
    quoted = parse.quote(name, safe='')
    assert own.get(f'/v1/apps/{quoted}', **TENANT)['app'] == name
    assert own.get(f'/v1/profiles/{quoted}')['group_name'] == name
    assert own.send('DELETE', f'/v1/apps/{quoted}').status_code == 204


# Hosts.

def test_hosts(api):
    found = {one['host']: one for one in api.get('/v1/hosts')['hosts']}
    assert {host: found[host]['egress_bps']
            for host in service.EGRESS_BPS} == service.EGRESS_BPS
    assert all(one['drain'] is None and 'classes' not in one
               and one['generation'] is not None
               for host, one in found.items() if host in service.EGRESS_BPS)
    one = api.get('/v1/hosts/h1')
    assert [one['coflow_id'] for one in one.pop('classes')] == ['c-p-a']
    assert one == found['h1']
    assert api.refused(404, 'GET', '/v1/hosts/h9')


def test_a_host_is_drained(own):
    path = '/v1/hosts/h1/drain'
    found = own.send('PUT', path, {'reason': 'fans'}, user='otto').json
    assert (found['host'], found['drain'], found['drain_reason'],
            found['drain_since']) == ('h1', 'draining', 'fans',
                                      service.NOW_S)
    for shown in (own.get('/v1/hosts/h1'), {
            one['host']: one for one in own.get('/v1/hosts')['hosts']}['h1']):
        assert shown['drain_reason'] == 'fans'
    change, = own.get('/v1/settings/history')['changes']
    assert change['who'] == 'otto'
    undrained = own.send('DELETE', path, user='anna')
    assert (undrained.status_code, undrained.text) == (204, '')
    assert own.get('/v1/hosts/h1')['drain'] is None
    assert {one['who'] for one in own.get(
        '/v1/settings/history')['changes']} == {'otto', 'anna'}
    assert own.send('PUT', path, {}).json['drain_reason'] == ''


@pytest.mark.parametrize('method', ['PUT', 'DELETE'])
def test_only_hosts_are_drained(api, method):
    assert api.refused(404, method, '/v1/hosts/h9/drain', {})
    for name in ('a%20b', 'x' * 256):
        error = api.refused(400, method, f'/v1/hosts/{name}/drain', {})
        assert error['field'] == 'host'
        assert len(error['value']) <= 160


EDGE = {'role': 'service', 'user': 'h1'}


def test_a_host_has_its_policy(api):
    path = '/v1/hosts/h1/policy'
    found = api.send('GET', path, **EDGE)
    assert found.json['host'] == 'h1' and found.status_code == 200
    assert found.json['generation'] == 10 ** 9 + 1
    assert found.headers['Content-Type'] == falcon.MEDIA_JSON
    assert api.refused(404, 'GET', '/v1/hosts/h9/policy', role='service',
                       user='h9')
    assert api.refused(400, 'GET', '/v1/hosts/a b/policy', role='service',
                       user='a b')['field'] == 'host'


def test_a_policy_of_the_leader_elsewhere(own, monkeypatch):
    own.rooms._epoch = None
    monkeypatch.setattr(app, 'ASK_S', 0.0)
    path = '/v1/hosts/h1/policy'
    assert own.refused(503, 'GET', path, **EDGE)['code'] == 'virtco.starting'
    policy = edge_policy.EdgePolicy('h1', 7, 60.0, 1e9, 1e9, 1e7, (), ())
    theirs = {('h1', 0.0): policy, ('h2', 0.0): None}
    monkeypatch.setattr(own.rooms._upstream, 'policy',
                        lambda *asked: theirs[asked])
    assert own.send('GET', path, **EDGE).json['generation'] == 7
    assert own.refused(404, 'GET', '/v1/hosts/h2/policy', role='service',
                       user='h2')


def test_probes_are_ordered(own):
    for host in ('h7', 'h8'):
        own.rooms.state.report(host, made.report(
            probe={'address': '192.0.2.1', 'port': 7}))
    found = own.send('POST', '/v1/probes', {'pairs': [['h7', 'h8']]})
    assert found.status_code == 202
    path = '/v1/probes/' + found.json['id']
    assert own.get(path)['done'] is False
    own.rooms.decide.orders.turn()
    trains = own.rooms.distribute._trains(['h2', 'h7'])
    assert trains.keys() == {'h7'} and 'h8' in str(trains)
    assert own.refused(404, 'GET', f'/v1/probes/{uuid.uuid4()}')
    assert own.refused(400, 'POST', '/v1/probes', {'pairs': []})
    assert own.get('/v1/probes')['enabled'] is True


def test_nobody_leads_who_knows_what_is_measured(own, monkeypatch):
    monkeypatch.setattr(own.rooms.decide.orders, '_leads', False)
    assert own.refused(503, 'GET', '/v1/probes')['code'] == 'virtco.starting'


def test_distributors(api):
    assert api.refused(404, 'GET', '/v1/distributor', role='service')
    named = service.Service(distributor={'endpoints': 'd1:1,d2:2'})
    found = named.get('/v1/distributor', role='service')
    assert {(one['host'], one['port']) for one in found['servers']} == {
        ('d1', 1), ('d2', 2)}
    assert 'ticket' not in found
    # A ticket is for the host that asks, once a leader was seen.
    with named.rooms.database.reader() as session:
        named.rooms.elector.seen = leader.current(session)
    path = '/v1/distributor?host=h1'
    asked = named.get(path, role='service', user='h1')
    assert asked['ticket'] == named.rooms.distribute.ticket_of('h1')
    assert asked['ticket'] != named.rooms.distribute.ticket_of('h2')
    assert named.refused(403, 'GET', path, role='service', user='h2')
    named.rooms.database.dispose()


# Operations.

def test_a_deleted_plane_is_in_the_history(own):
    own.send('PUT', '/v1/topology', {'planes': [{'name': 'storage'}]})
    assert own.send('DELETE', '/v1/topology/storage').status_code == 204
    last, first = own.get('/v1/settings/history')['changes']
    assert (last['what'], last['before'], last['after'], last['who']) == (
        'topology storage', 'generation 1', 'deleted', 'u')
    assert first['after'].startswith('generation 1')
    assert own.refused(404, 'DELETE', '/v1/topology/storage')
    assert own.refused(400, 'DELETE', '/v1/topology/a b')['field'] == 'plane'
    assert len(own.get('/v1/settings/history')['changes']) == 2


def test_a_topology_is_shown_with_its_own_generation(own, monkeypatch):
    """Another import may end while the answer is made."""
    own.send('PUT', '/v1/topology', {'planes': [{'name': 'one'}]})
    dump, others = topology_routes.plain.dump, [tree.Plane('other')]

    def late(topology):
        if others:
            own.rooms.objects.topology.replace((others.pop(),))
        return dump(topology)

    monkeypatch.setattr(topology_routes.plain, 'dump', late)
    for names in (['one'], ['one', 'other']):
        found = own.get('/v1/topology')
        assert [plane['name'] for plane in found['planes']] == names
        assert found['generation'] == len(names)


def test_settings(own):
    assert own.get('/v1/settings')['order'] == 'mrtf'
    found = own.send('PATCH', '/v1/settings', {'order': 'sebf'}, user='otto')
    assert found.json['order'] == own.get('/v1/settings')['order'] == 'sebf'
    change, = own.get('/v1/settings/history')['changes']
    assert change['who'] == 'otto'
    assert own.refused(400, 'PATCH', '/v1/settings', {'order': 'x'})
    assert own.refused(400, 'PATCH', '/v1/settings', {})


def test_notifications_move_vms(own):
    def notified(host, timestamp):
        found = own.send('POST', '/v1/notifications', {
            'event_type': 'instance.live_migration_post_dest.end',
            'payload': {'nova_object.data': {'uuid': 'i1', 'host': host}},
            'publisher_id': f'nova-compute:{host}', 'timestamp': timestamp},
            role='service')
        assert found.status_code == 202
        return found.json['changed']

    assert notified('h2', '2001-01-01 00:00:02') is True
    # One that Nova sent earlier comes too late.
    assert notified('h0', '2001-01-01 00:00:01') is False
    with own.rooms.database.reader() as session:
        assert session.get(models.Member, ('p-a', 1)).host == 'h2'
    assert own.refused(400, 'POST', '/v1/notifications', {'event_type': 'x'},
                       role='service')


def test_health_and_metrics(own):
    found = own.send('GET', '/health')
    assert found.status_code == 503
    assert found.json['status'] == 'failing'
    assert set(found.json['parts']) == {
        'planner', 'scheduler', 'keeper', 'distributor', 'database'}
    assert found.json['parts']['planner'] and not (
        found.json['parts']['keeper'])
    assert (found.json['hosts'], found.json['mode']) == (3, 'enforce')
    own.rooms.starting.what = 'this test'
    found = own.send('GET', '/health')
    assert (found.status_code, found.json['what']) == (503, 'this test')


@pytest.mark.parametrize('plans', [False, True])
def test_what_does_not_plan_needs_no_planner(plans):
    rooms = app.App(stored.conf(database={'connection': 'sqlite://'}),
                    clock=service.Clock(), plans=plans)
    rooms.starting.ready()
    _is_well, found = health.Document(rooms).health()
    rooms.database.dispose()
    assert found.parts['planner'] is not plans


def test_gauges(own, monkeypatch):
    own.clock.now_s += 4
    monkeypatch.setattr(own.rooms.state.live, 'count_overstating', lambda: 3)
    own.add(stored.group('b'), stored.coflow('p-b'), stored.group('c'),
            stored.coflow('p-c', state=states.CoflowState.DONE))
    own.rooms.state.live.load_debts({'q': 7.0})
    generations = own.rooms.decide.publisher.generations()
    own.rooms.state.live.intake('h1', made.report(
        applied_generation=generations['h1']), own.clock())
    found = own.send('GET', '/metrics')
    assert found.headers['Content-Type'].startswith('text/plain')
    values = {line.rpartition(' ')[0]: float(line.rpartition(' ')[2])
              for line in found.text.splitlines() if line[0] != '#'}
    assert values['virtco_coflows{state="active"}'] == 2
    assert values['virtco_coflows{state="done"}'] == 1
    assert values['virtco_coflows{state="planned"}'] == 0
    assert values['virtco_overstating_coflows'] == 3
    lag = {name: value for name, value in values.items()
           if 'generation' in name and 'host="h' in name}
    # What is left of the epoch before is no lag.
    assert sorted(lag.values()) == [0, 1, 1]
    ages = {name: value for name, value in values.items()
            if 'report_age' in name}
    assert sorted(ages.values()) == [0, 4, 4]
    assert 7.0 in {value for name, value in values.items()
                   if 'debt' in name and '"q"' in name}


def test_versions(api):
    assert 'versions' in api.get('/') and 'version' in api.get('/v1')


# Bodies.

@pytest.mark.parametrize('content, body, code', [
    ('application/json', b'{', 'virtco.malformed'),
    ('application/json', b'', 'virtco.no_body'),
    ('text/plain', b'{}', 'virtco.media_type')])
@pytest.mark.parametrize('method, path', [
    ('POST', '/v1/probes'), ('PUT', '/v1/hosts/h1/drain')])
def test_bodies_that_are_no_json(api, method, path, content, body, code):
    found = api.wsgi.simulate_request(
        method, path, body=body, headers={
            'X-Roles': 'admin,service', 'X-User-Name': 'h1',
            'X-User-Id': 'u', 'Content-Type': content})
    assert found.json['error']['code'] == code
    assert found.status_code == (415 if code == 'virtco.media_type' else 400)
    assert found.headers['Content-Type'] == falcon.MEDIA_JSON
