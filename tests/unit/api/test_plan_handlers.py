# SPDX-License-Identifier: Apache-2.0

"""What the API answers of placements, plans and the topology."""

import copy
import json

import pytest

from tests.unit import stored
from tests.unit.api import service
from virtco.db import models
from virtco.model import states
from virtco.topology.formats import plain

GROUP_FLAVOR = {'vcpus': 1, 'memory_mb': 1, 'disk_gb': 1}
TENANT = {'role': 'member,reader'}


# Placements and plans.

@pytest.fixture(scope='module')
def placed():
    found = service.Service()
    found.answers = [found.send(
        'PUT', f'/v1/placements/g{row}', service.placement(row),
        role='service').json for row in range(2)]
    yield found
    found.rooms.database.dispose()


def test_a_placement_is_asked_for(placed):
    hosts = [one['host'] for one in placed.answers]
    assert [one['instance_uuid'] for one in placed.answers] == ['g0', 'g1']
    assert len(set(hosts)) == 2 and set(hosts) <= service.EGRESS_BPS.keys()
    found = placed.get('/v1/placements/g0')
    assert found | {'host': hosts[0], 'host_now': hosts[0],
                    'status': 'planned', 'project_id': 'p'} == found
    assert found['rows'] == {'0': hosts[0], '1': hosts[1]}
    assert service.hosts_in(found['why'])
    mine = placed.get('/v1/placements/g0', **TENANT)
    assert not service.hosts_in(mine)
    assert mine == found | {'host': None, 'host_now': None, 'hosts': [],
                            'rows': {}, 'bottleneck': None, 'why': ''}
    for path in ('', '/explanation'):
        assert placed.refused(404, 'GET', '/v1/placements/nobody' + path)
    assert placed.refused(400, 'PUT', '/v1/placements/' + 'x' * 300,
                          service.placement(0), role='service')[
        'field'] == 'instance_uuid'


def test_why_there_is_no_plan_is_told_to_all(own):
    own.send('PUT', '/v1/placements/n0', service.placement(
        0, name='n', n_vms=7), role='service')
    found = own.get('/v1/placements/n0', **TENANT)
    assert found['status'] != 'planned' and found['why']


def test_a_vm_is_released(own):
    assert own.send('PUT', '/v1/placements/g0', service.placement(0),
                    role='service').json['status'] == 'planned'
    assert own.get('/v1/placements/g0')['host_now'] is not None
    found = own.send('DELETE', '/v1/placements/g0', role='service')
    assert (found.status_code, found.text) == (204, '')
    assert own.refused(404, 'DELETE', '/v1/placements/g0', role='service')
    with own.rooms.database.reader() as session:
        assert not [one for one in session.query(models.Member)
                    if one.instance_uuid == 'g0']


def test_an_explanation_has_findings_about_the_group(placed):
    ends = {one['host'] for one in placed.answers}
    other, = service.EGRESS_BPS.keys() - ends
    placed.send('PUT', '/v1/topology', {'planes': [{
        'name': 'front-end', 'levels': [{'name': 'leaf'}, {'name': 'spine'}],
        'nodes': [{'name': 's', 'nodes': [
            {'name': 'near', 'hosts': sorted(ends)},
            {'name': 'far', 'hosts': [other]}]}]}]})
    placed.add(*(models.Finding(
        subject=subject, kind='leaf-uplink', found_at=5.0,
        document=json.dumps({
            'kind': 'leaf-uplink', 'subject': subject, 'rate_bps': 1.0,
            'expected_bps': 2.0, 'evidence': []}))
        for subject in (*sorted(ends), other, 'near', 'far')))
    placed.rooms.objects.findings.refresh()
    placed.rooms.decide.loop.run_once()
    found = placed.get('/v1/placements/g1/explanation?budget_s=0.001')
    assert {one['subject'] for one in found['findings']} == ends | {'near'}
    assert all('evidence' not in one and one['found'] == 5.0
               for one in found['findings'])
    assert len(placed.get('/v1/checks')['findings']) == 5
    for budget in ('0', '61', 'x'):
        assert placed.refused(
            400, 'GET', f'/v1/placements/g1/explanation?budget_s={budget}')[
            'field'] == 'budget_s'


def test_plans_of_what_is_not_asked_for_yet(api):
    body = {'groups': [{'name': 'n', 'tm': [[0, 10 ** 9], [0, 0]],
                        'flavor': GROUP_FLAVOR}],
            'hosts': [{'host': host, 'free': GROUP_FLAVOR}
                      for host in ('h1', 'h2')]}
    found = api.send('POST', '/v1/plans', body)
    assert found.status_code == 200
    assert service.hosts_in(found.json) == {'h1', 'h2'}
    assert api.refused(400, 'POST', '/v1/plans', body | {'groups': []})


def test_moves_that_would_pay(own):
    assert own.get('/v1/advice') == {'moves': []}
    own.send('PUT', '/v1/placements/g0', service.placement(0),
             role='service')
    assert own.send('POST', '/v1/advice', {'budget_s': 0.01}).json == {
        'moves': []}
    assert own.refused(400, 'POST', '/v1/advice', {'budget_s': 61})


# Topology.

PLANES = [{'name': 'front-end', 'levels': [{'name': 'leaf'}], 'nodes': [
    {'name': 'l1', 'hosts': ['h0', 'h9']}, {'name': 'l2', 'hosts': ['h2']}]}]


def test_a_topology_is_told(own):
    path = '/v1/topology'
    dry = own.send('PUT', path, {'planes': PLANES, 'dry_run': True}).json
    assert (dry['applied'], dry['generation']) == (False, 0)
    assert own.get(path)['planes'] == []
    assert own.get('/v1/settings/history')['changes'] == []
    found = own.send('PUT', path, {'planes': PLANES}, user='otto').json
    assert found['applied'] is True and found['generation'] > 0
    assert found['changes'] == dry['changes'] != []
    assert found['hosts_without_leaf'] == dry['hosts_without_leaf'] == {
        'front-end': ['h1']}
    shown = own.get(path)
    assert shown['generation'] == found['generation']
    assert shown['planes'][0]['nodes'][1]['name'] == 'l2'
    assert shown['hosts_without_leaf'] == {'front-end': ['h1']}
    change, = own.get('/v1/settings/history')['changes']
    assert (change['who'], change['what']) == ('otto', 'topology front-end')
    assert change['before'] == 'generation 0'
    assert change['after'].startswith(f'generation {found["generation"]}, ')
    # Nothing that changes nothing is in the history.
    assert own.send('PUT', path, {'planes': PLANES}).json['changes'] == []
    assert len(own.get('/v1/settings/history')['changes']) == 1
    assert own.refused(409, 'PUT', path, {
        'planes': [], 'generation': found['generation'] + 9})
    deleted = own.send('DELETE', path + '/front-end')
    assert (deleted.status_code, deleted.text) == (204, '')
    assert own.get(path)['planes'] == []
    assert own.refused(404, 'DELETE', path + '/front-end')


def test_an_import_is_compared_with_what_another_process_told(own):
    path, known = '/v1/topology', own.rooms.objects.topology
    other = copy.copy(known)
    other.replace(plain.read({'planes': PLANES}).planes)
    found = own.send('PUT', path, {'planes': PLANES, 'dry_run': True}).json
    assert found['changes'] == []


def test_capacity(own):
    body = {'flavor': {'vcpus': 2, 'memory_mb': 0, 'disk_gb': 0},
            'level': 'leaf', 'hosts': [
                {'host': host, 'free': {'vcpus': vcpus, 'memory_mb': 9,
                                        'disk_gb': 9}}
                for host, vcpus in (('h0', 4), ('h9', 5), ('h2', 2),
                                    ('h7', 8))]}
    assert own.refused(404, 'POST', '/v1/capacity', body)
    own.send('PUT', '/v1/topology', {'planes': PLANES})
    found = own.send('POST', '/v1/capacity', body).json
    assert (found['plane'], found['level']) == ('front-end', 'leaf')
    assert found['hosts_without_leaf'] == ['h7']
    assert [domain['groups'] for domain in found['domains']] == [
        {'2': 2, '4': 1, '8': 0, '16': 0, '32': 0},
        dict.fromkeys(('2', '4', '8', '16', '32'), 0)]
    asked = own.send('POST', '/v1/capacity', body | {'vms': [1]}).json
    assert [domain['groups'] for domain in asked['domains']] == [
        {'1': 4}, {'1': 1}]
    assert own.refused(404, 'POST', '/v1/capacity', body | {'plane': 'back'})
    # A VM that is on its way has its room already.
    own.add(stored.group('young'), stored.member(
        'p-young', 0, 'h2', vcpus=2.0, expires_at=service.NOW_S + 60,
        placed_at=service.NOW_S - 1, room_vcpus=2.0, room_memory_mb=9.0,
        room_disk_gb=9.0, state=states.MemberState.RESERVED))
    asked = own.send('POST', '/v1/capacity', body | {'vms': [1]}).json
    assert asked['domains'][1]['groups'] == {'1': 0}
