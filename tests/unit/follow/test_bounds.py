# SPDX-License-Identifier: Apache-2.0

"""How much is told, kept and asked for, on both sides of each bound."""

import pytest

from tests.unit import stored
from tests.unit.follow import test_nova
from virtco import exception
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.db import records
from virtco.follow import auditor
from virtco.follow import feedback
from virtco.follow import inventory
from virtco.follow import notifications
from virtco.follow import nova
from virtco.model import states

api = test_nova.api
NEXT = [{'rel': 'next', 'href': 'x'}]


@pytest.mark.parametrize(('length', 'cut'), [(500, 500), (501, 500)])
def test_a_fault_is_short(length, cut):
    found = auditor.change_of(
        db_groups.Believed('u', 'p', 'reserved', 'h'),
        nova.Server('u', 'ERROR', None, fault='x' * length))
    assert len(found.why) == cut
    found = notifications.change_of(notifications.BUILD_ERROR, {
        'instance_uuid': 'u', 'reason': {'exception': 'y' * length}})
    assert len(found.why) == cut


@pytest.mark.parametrize(('uuid', 'is_id'), [
    ('u' * 36, True), ('u' * 37, False), ('', False), (5, False)])
def test_an_id_has_its_length(uuid, is_id):
    found = notifications.change_of('instance.delete.end', {'uuid': uuid})
    assert (found is not None) == is_id


class Tenant:
    def __init__(self):
        self.told, self.refuses, self.error = [], set(), None

    def set_metadata(self, uuid, values):
        if self.error is not None:
            raise self.error
        self.told.append((uuid, dict(values)))
        return uuid not in self.refuses


def told(n_vms, **values):
    database = stored.database()
    stored.add(database, stored.group(**{'n_vms': n_vms} | values), *(
        stored.member('p-a', row, 'h') for row in range(n_vms)))
    tenant = Tenant()
    return database, tenant, feedback.Feedback(database, tenant,
                                               lambda: 10_000.0)


def test_a_turn_tells_a_hundred_and_those_that_wait_come_last():
    _database, tenant, found = told(150)
    tenant.refuses = {f'p-a-{row}' for row in range(60)}
    first = found.turn()
    assert len(tenant.told) == 100 == feedback.MOST_A_TURN
    refused = {uuid for uuid, _ in tenant.told} & tenant.refuses
    assert first == 100 - len(refused)
    tenant.told.clear()
    found.turn()
    # Those that nobody asked yet go before those that refused.
    assert not {uuid for uuid, _ in tenant.told[:50 - (60 - len(refused))]
                } & refused
    tenant.refuses = set()
    while found.turn():
        pass
    assert found._written.keys() == {f'p-a-{row}' for row in range(150)}
    assert found.turn() == 0


@pytest.mark.parametrize(('length', 'is_cut'), [(255, False), (256, True)])
def test_a_value_in_nova_is_short(length, is_cut):
    name = 'n' * length
    shown = feedback._shortened(name)
    assert len(shown) == 255 and shown.endswith('...') is is_cut


@pytest.mark.parametrize(('at_s', 'is_told'), [
    (6400.1, True), (6399.9, False)])
def test_an_ignored_hint_is_told_for_an_hour(at_s, is_told):
    database, _tenant, found = told(1)
    with database.writer() as session:
        records.add_event(session, project_id='p', group_name='',
                          instance_uuid='x', kind='hint_ignored',
                          detail='why', created_at=at_s)
    assert ('x' in found.wanted()) is is_told


def test_ccts_of_all_coflows_stand_side_by_side():
    database, _tenant, found = told(1)
    stored.add(database, stored.coflow('p-a', id='1', position=1,
                                       measured_cct_s=2.0),
               stored.coflow('p-a', id='0', cct_s=1.5))
    assert found.wanted()['p-a-0'] == {
        'virtco.group': 'a', 'virtco.row': '0',
        'virtco.planned_cct_s': '1.500,', 'virtco.measured_cct_s': ',2.000',
        'virtco.why': 'planned CCT 1.5 s, measured CCT 2 s'}


def test_only_members_that_run_are_told():
    database, _tenant, found = told(1)
    stored.add(database, stored.member('p-a', 1, 'h',
                                       state=states.MemberState.RESERVED),
               stored.member('p-a', 2, 'h', instance_uuid=None))
    assert found.wanted().keys() == {'p-a-0'}
    with database.writer() as session:
        session.get(models.Group, 'p-a').retired_at = 1.0
    assert found.wanted() == {}


def test_who_is_away_is_told_of_when_it_answers_again(caplog):
    caplog.set_level('INFO')
    _database, tenant, found = told(2)
    tenant.error = exception.NovaUnavailable(why='away')
    for _ in range(2):
        assert found.turn() == 0
        assert len([text for text in caplog.messages if 'away' in text]) == 1
    tenant.error = None
    assert found.turn() == 2
    assert 'Tenants are told on their servers again.' in caplog.messages
    caplog.clear()
    assert found.turn() == 0 and caplog.messages == []
    # The next outage is told, too.
    found._written.clear()
    tenant.error = exception.NovaUnavailable(why='away')
    assert found.turn() == 0 and 'away' in caplog.text


def test_that_all_goes_well_is_told_to_nobody(caplog):
    caplog.set_level('INFO')
    _database, _tenant, found = told(2)
    assert found.turn() == 2 and caplog.messages == []


def test_who_was_told_at_last_waits_no_longer_than_others():
    database, tenant, found = told(2)
    tenant.refuses = {'p-a-0'}
    assert found.turn() == 1
    tenant.refuses = set()
    assert found.turn() == 1
    with database.writer() as session:
        session.get(models.Group, 'p-a').name = 'b'
    tenant.told.clear()
    assert found.turn() == 2
    assert [uuid for uuid, _ in tenant.told] == ['p-a-0', 'p-a-1']


def hypervisor(number, state='up', status='enabled'):
    return {'id': f'u{number}', 'state': state, 'status': status,
            'service': {'host': f'h{number}'}}


@pytest.mark.parametrize('n_asked', [1, 2])
def test_an_answer_is_good_for_fifteen_seconds(api, n_asked):
    api.answers |= {
        '/os-hypervisors/detail': (200, {'hypervisors': [
            hypervisor(1), hypervisor(2, 'down'),
            hypervisor(3, status='disabled')]}),
        '/allocation_candidates': (200, {'provider_summaries': {
            f'u{i}': {'resources': {
                'VCPU': {'capacity': 9, 'used': 2},
                'DISK_GB': {'capacity': 5, 'used': 7}}}
            for i in (1, 2, 3)}})}
    now_s = [100.0]
    found = inventory.Inventory(test_nova.conf_of(api), lambda: now_s[0])
    assert found.free() == {'h1': (7.0, 0.0, 0.0)}
    now_s[0] += 15.0 if n_asked == 1 else 15.1
    found.free()
    assert api.asked.count('/allocation_candidates') == n_asked


def test_a_nova_that_does_not_tell_hints_is_named(api):
    api.answers['/servers/detail'] = (406, {})
    found = nova.Nova(test_nova.conf_of(api))
    with pytest.raises(exception.NovaUnavailable, match='2.100'):
        list(found.all_servers())


def test_all_servers_of_all_pages(api):
    found = nova.Nova(test_nova.conf_of(api))
    assert [one['id'] for one in found.all_servers()] == [
        f'u{i}' for i in range(7)]
    assert api.asked.count('/servers/detail') == 3
    api.answers['/servers/detail'] = (200, {'servers': [],
                                            'servers_links': NEXT})
    assert list(found.all_servers()) == list(found.servers('p')) == []


@pytest.mark.parametrize(('pages', 'n_asked'), [
    ([{'hypervisors': [hypervisor(1), hypervisor(2)],
       'hypervisors_links': NEXT}, {'hypervisors': [hypervisor(3)]}], 2),
    ([{'hypervisors': [hypervisor(1)], 'hypervisors_links': NEXT},
      {'hypervisors': [], 'hypervisors_links': NEXT}], 2),
    ([{'hypervisors': []}], 1)])
def test_hypervisors_of_all_pages(api, pages, n_asked):
    """Only a link tells that there are more."""
    def page(handler, query):
        assert (query.get('marker'), int(query['limit'])) == (
            (None, f'u{len(pages[0]["hypervisors"])}')[len(told)], 500)
        told.append(query)
        return 200, pages[len(told) - 1]

    told = []
    api.page = page
    found = nova.Nova(test_nova.conf_of(api)).hypervisors()
    assert found == {one['id']: one['service']['host'] for answer in pages
                     for one in answer['hypervisors']}
    assert len(told) == n_asked
