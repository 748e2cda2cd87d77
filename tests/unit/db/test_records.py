# SPDX-License-Identifier: Apache-2.0

"""Queries whose answers differ by one condition."""

import pytest
import sqlalchemy as sa

from tests.unit import stored
from tests.unit.db import test_db as made
from virtco import exception
from virtco.db import bookings
from virtco.db import groups
from virtco.db import models
from virtco.db import operators
from virtco.db import profile_rows as profiles
from virtco.db import records
from virtco.db import topology_rows as topology
from virtco.model import booking
from virtco.model import states
from virtco.profiles import learning
from virtco.profiles import pairs


@pytest.fixture
def session(database):
    with database.writer() as found:
        yield found


def _add(session, *rows):
    session.add_all(rows)
    session.flush()


def test_coflows_are_listed_the_newest_last(session):
    _add(session, made.group(), made.group('b', 'q'))
    _add(session, *(made.coflow('p-a', id=name, created_at=at, position=place)
                    for name, at, place in (
                        ('1', 1.0, 0), ('3', 3.0, 1), ('2', 3.0, 0))),
         made.coflow('q-b', id='4', project_id='q', created_at=2.0),
         made.coflow(None, id='5', created_at=0.5))

    def listed(**options):
        return [c.id for c in records.list_coflows(session, **options)]

    assert listed() == ['5', '1', '4', '2', '3']
    assert listed(project_id='p') == ['5', '1', '2', '3']
    assert listed(limit=2) == ['2', '3']
    assert listed(states=['planned']) == listed()
    assert listed(states=['done', 'retired']) == []
    pages, before = [], None
    while page := records.list_coflows(session, limit=2, before=before):
        pages.append([one.id for one in page])
        before = page[0]
    assert pages == [['2', '3'], ['1', '4'], ['5']]
    # Of one age and position, the id decides.
    _add(session, made.coflow(None, id='6', created_at=0.5))
    assert listed(before=session.get(models.Coflow, '6')) == ['5']
    session.delete(session.get(models.Coflow, '6'))
    _add(session, made.member('p-a', 0, display_name='vm'))
    assert listed(server='vm') == ['1', '2', '3']
    assert listed(server='v') == []
    assert records.count_registered(session, 'p') == (1, 1)
    assert records.count_registered(session, 'q') == (0, 0)
    assert records.coflow_names(session, ['1', '4', 'x']) == {
        '1': ('c', 'p'), '4': ('c', 'q')}


def _host(name, text):
    return {'host': name, 'first_seen': 1.0, 'report': text}


@pytest.mark.parametrize('n_more', [0, records.MOST_IN])
def test_hosts_are_added_or_replaced(session, n_more):
    more = [_host(f'm{i}', '') for i in range(n_more)]
    records.save_progress(session, [], [_host('a', 'a1'), _host('b', 'b1')])
    session.flush()
    records.save_progress(session, [], [_host('a', 'a2'), _host('c', 'c1'),
                                        *more])
    session.expire_all()
    found = {one.host: one.report for one in records.list_hosts(session)}
    assert {name: found[name] for name in 'abc'} == {
        'a': 'a2', 'b': 'b1', 'c': 'c1'}
    assert len(found) == 3 + n_more


def _reading(**values):
    return models.Reading(**{
        'src': 'a', 'dst': 'b', 'slot': 0, 'lower_bound': False, 'loss': 0.0,
        'method': 'train'} | values)


def test_readings(session):
    for slot, at in (0, 1.0), (1, 2.0), (2, 3.0), (0, 4.0):
        session.merge(_reading(
            slot=slot, rate_bps=at, measured_at=at))
        session.flush()

    def times(*args):
        return [one.measured_at
                for one in records.list_readings(session, *args)]

    assert times() == [2.0, 3.0, 4.0] and times(2.0) == [3.0, 4.0]
    # Neither what is as old nor the last place goes.
    assert records.forget_readings(session, 2.0, 3) == 0
    assert records.forget_readings(session, 3.0, 3) == 1
    assert times() == [3.0, 4.0]
    assert records.forget_readings(session, 0.0, 2) == 1
    assert times() == [4.0]


def test_readings_of_before_1970_are_none(session):
    session.merge(_reading(rate_bps=1.0, measured_at=0.5))
    session.flush()
    assert len(records.list_readings(session)) == 1


def test_settings_projects_and_debts(session):
    records.save_settings(session, {'a': '1', 'b': '2'})
    session.flush()
    records.save_settings(session, {'b': '3'})
    assert records.settings(session) == {'a': '1', 'b': '3'}
    new = records.project(session, 'q')
    assert (new.priority_class, new.weight, new.debt_bytes) == (0, 1.0, 0.0)
    _add(session, models.Project(project_id='p', priority_class=2,
                                 weight=3.0))
    records.save_debts(session, {'q': 7.0, 'p': 5.0})
    session.flush()
    session.expire_all()
    assert [(one.project_id, one.priority_class, one.weight, one.debt_bytes)
            for one in records.list_projects(session)] == [
        ('p', 2, 3.0, 5.0), ('q', 0, 1.0, 7.0)]


def test_only_live_coflows_of_a_project_change(session):
    _add(session, made.group(), made.group('b', 'q'))
    _add(session, made.coflow('p-a', id='1'),
         made.coflow('p-a', id='2', state=states.CoflowState.DONE,
                     iteration=1),
         made.coflow('q-b', id='3', project_id='q'))
    records.change_coflows_of(session, 'p', {'weight': 4.0})
    session.expire_all()
    assert [session.get(models.Coflow, one).weight for one in '123'] == [
        4.0, 1.0, 1.0]


def _event(session, uuid='', **values):
    records.add_event(session, **{
        'project_id': 'p', 'group_name': 'g', 'kind': 'k',
        'instance_uuid': uuid, 'detail': '', 'created_at': 1.0} | values)


def test_events_by_their_subject(session):
    for detail, uuid, values in (
            ('1', 'i', {}), ('2', 'i', {'kind': 'other'}), ('3', 'j', {}),
            ('4', 'i', {'group_name': 'h'}),
            ('5', 'x', {'project_id': 'q'})):
        _event(session, uuid, detail=detail, **values)
    assert records.newest_event(session, 'i', 'k').detail == '4'
    assert records.newest_event(session, 'i', 'other').detail == '2'
    assert records.newest_event(session, 'j', 'other') is None

    def listed(**options):
        return ''.join(e.detail for e in records.list_events(
            session, **options))

    assert listed() == '54321' and listed(project_id='p') == '4321'
    assert listed(group_name='g') == '5321' and listed(limit=2) == '54'
    assert records.count_events(session, {'q'}) == {('q', 'g'): 1}


def test_the_last_reason_of_an_ignored_hint(session):
    for uuid, detail, at, kind in (
            ('i', 'first', 5.0, 'hint_ignored'),
            ('i', 'last', 6.0, 'hint_ignored'),
            ('i', 'other', 7.0, 'k'), ('', 'nobody', 7.0, 'hint_ignored'),
            ('j', 'at', 4.0, 'hint_ignored'),
            ('old', 'old', 3.9, 'hint_ignored')):
        _event(session, uuid, detail=detail, created_at=at, kind=kind)

    def told(*limit):
        return {uuid: event.detail for uuid, event in records.latest_events(
            session, ('hint_ignored', 'absent'), 4.0, *limit).items()}

    assert told() == {'i': 'last', 'j': 'at'}
    assert told(2) == {'i': 'last'}


def test_what_ended_at_the_very_time_is_not_purged(session):
    _add(session, made.group('old', live_key='x', retired_at=9.9),
         made.group('at', live_key='y', retired_at=10.0),
         models.Placement(instance_uuid='i', project_id='p', fingerprint='',
                          answer='', updated_at=10.0))
    for at in 9.9, 10.0:
        _event(session, created_at=at)
    counts = records.purge(session, 10.0)
    assert (counts['groups'], counts['placements'],
            counts['events']) == (1, 0, 1)


def test_more_groups_than_a_statement_takes_are_purged(session):
    _add(session, *(made.group(f'g{i}', live_key=str(i), retired_at=1.0)
                    for i in range(501)))
    assert records.purge(session, 2.0)['groups'] == 501


def test_planes_of_the_topology(session):
    assert topology.signature(session) == (0, 0, 0.0)
    topology.save_planes(session, {'b': 'B', 'a': 'A'}, 5.0)
    session.flush()
    assert topology.signature(session) == (2, 1, 5.0)
    topology.save_planes(session, {'b': 'C'}, 6.0)
    session.flush()
    assert topology.signature(session) == (2, 2, 6.0)
    assert [(one.name, one.document, one.generation)
            for one in topology.list_planes(session)] == [
        ('a', 'A', 1), ('b', 'C', 2)]
    assert topology.delete_plane(session, 'b') is True
    session.flush()
    assert topology.delete_plane(session, 'b') is False
    assert topology.signature(session) == (1, 3, 5.0)


def test_what_operators_did(session):
    _add(session, models.Drain(host='h', reason='r', drained_at=1.0))
    assert operators.drains(session)['h'].reason == 'r'
    _add(session, *(models.Change(changed_at=0.0, who='', what='', before='',
                                  after='')
                    for _ in range(operators.MOST_CHANGES - 1)))
    for length in 254, 6000:
        operators.add_change(session, 'w' * length, 'x' * length,
                             'b' * length, 'a' * length, 7.0)
    newest, next_one = operators.changes(session, 2)
    assert [len(text) for text in (newest.who, newest.what, newest.before,
                                   newest.after)] == [255, 320, 4000, 4000]
    assert len(next_one.who) == 254 and next_one.changed_at == 7.0
    assert len(operators.changes(session, 5000)) == 1000


def _hour(group_id, hour, project_id='p', name='n', app='', n_vms=3):
    return models.ProfileHour(
        group_id=group_id, hour=hour, project_id=project_id, group_name=name,
        app=app, n_vms=n_vms, pairs=pairs.encode({(0, 1): float(hour)}))


def test_hours_of_a_group_are_added_up(session):
    _add(session, made.group(app='x', n_vms=4))
    profiles.add(session, 7, {
        'p-a': {(0, 1): 2.0, (1, 0): 3.0}, 'gone': {(0, 1): 1.0}}, 9)
    session.flush()
    profiles.add(session, 7, {'p-a': {(0, 1): 5.0}}, 9)
    profiles.add(session, 7, {'gone': {}}, 9)
    (row,) = profiles.hours(session, 'p-a')
    assert pairs.decode(row.pairs) == {(0, 1): 7.0, (1, 0): 3.0}
    assert (row.hour, row.project_id, row.group_name, row.app,
            row.n_vms) == (7, 'p', 'a', 'x', 4)


@pytest.mark.parametrize(('most', 'hours'), [
    (10 ** 6, [1, 2, 3, 4]), (27, [2, 3, 4]), (26, [3, 4]), (5, [4])])
def test_only_so_many_bytes_of_a_profile_are_read(session, monkeypatch, most,
                                                  hours):
    monkeypatch.setattr(profiles, 'MOST_CHARS', most)
    _add(session, *(_hour('g', hour) for hour in range(1, 5)))
    assert [row.hour for row in profiles.hours(session, 'g')] == hours


def test_profiles_are_trimmed_and_purged(session):
    _add(session, made.group(), *(_hour('g', hour) for hour in range(1, 6)),
         _hour('q', 1, 'q'))
    profiles.add(session, 6, {'p-a': {(0, 1): 1.0}}, 4)
    assert [one.hour for one in profiles.hours(session, 'g')] == [3, 4, 5]
    profiles.add(session, 6, {'p-a': {(0, 1): 1.0}}, 4)
    profiles.purge(session, 4)
    session.expire_all()
    assert [one.hour for one in profiles.hours(session, 'g')] == [4, 5]
    assert profiles.hours(session, 'q') == []


def test_groups_of_which_something_is_known(session):
    _add(session, _hour('g', 1), _hour('g', 2), _hour('h', 3, name='m'),
         _hour('q', 9, 'q', app='x'))
    of_p = [('h', 'p', 'm', '', 3, 3, 3, 1), ('g', 'p', 'n', '', 3, 1, 2, 2)]
    assert list(map(tuple, profiles.list_groups(session, 'p'))) == of_p
    assert list(map(tuple, profiles.list_groups(session, None))) == [
        ('q', 'q', 'n', 'x', 3, 9, 9, 1), *of_p]
    assert profiles.find(session, 'p', 'n') == 'g'
    assert profiles.find(session, None, 'n') == 'q'
    assert profiles.find(session, 'p', 'h') == 'h'
    assert profiles.find(session, 'p', 'q') is None


def test_an_operator_sees_the_newest_hours_of_all(session):
    _add(session, *(_hour(f'g{i}', i) for i in range(1001)))
    found = profiles.list_groups(session, None)
    assert (len(found), found[0].group_id, found[-1].group_id) == (
        1000, 'g1000', 'g1')


def test_launches_of_an_application(session):
    n = learning.MOST_LAUNCHES + 1
    _add(session, made.group('mine', app='x'), made.group('other', app='y'),
         made.group('their', 'q', app='x'))
    _add(session, *(_hour(f'g{i}', 10 * i + h, app='x', n_vms=i + 1)
                    for i in range(n) for h in (0, 1)),
         _hour('o', 99, app='y'), _hour('t', 99, 'q', app='x'))
    found = profiles.launches(session, 'p', 'x')
    assert [launch.n_vms for launch in found] == list(range(n, 1, -1))
    assert found[0].sent == {(0, 1): 20.0 * (n - 1) + 1}
    of_p = [('p', 'x', n, 10 * (n - 1) + 1), ('p', 'y', 1, 99)]
    assert list(map(tuple, profiles.list_apps(session, 'p'))) == of_p
    assert list(map(tuple, profiles.list_apps(session, None))) == [
        *of_p, ('q', 'x', 1, 99)]
    assert profiles.forget_app(session, 'p', 'x') is True
    assert profiles.forget_app(session, 'p', 'x') is False
    session.expire_all()
    assert list(map(tuple, profiles.list_apps(session, None))) == [
        ('p', 'y', 1, 99), ('q', 'x', 1, 99)]
    assert [session.get(models.Group, name).app for name in (
        'p-mine', 'p-other', 'q-their')] == ['', 'y', 'x']
    # One that ended within its first hour.
    _add(session, _hour('short', 500, app='z', n_vms=7))
    (launch,) = profiles.launches(session, 'p', 'z')
    assert launch.n_vms == 7


def test_groups_by_id_or_name(session):
    _add(session, made.group(), made.group('a', 'q'), made.group('b'),
         made.group('gone', live_key='p-gone', retired_at=1.0))

    def found(project_id, name):
        return {one.id for one in groups.living(session, project_id, name)}

    assert found('p', 'a') == {'p-a'} and found(None, 'a') == {'p-a', 'q-a'}
    assert found(None, 'p-b') == {'p-b'} and found(None, 'gone') == set()
    assert found('q', 'p-a') == set()
    assert groups.only_living(session, None, 'b').id == 'p-b'
    with pytest.raises(exception.NotFound):
        groups.only_living(session, 'p', 'gone')
    with pytest.raises(exception.Invalid, match='several projects'):
        groups.only_living(session, None, 'a')
    # Whose name is another group's id takes nothing from it.
    _add(session, made.group('p-b', 'q'))
    assert groups.only_living(session, None, 'p-b').id == 'p-b'
    assert groups.only_living(session, 'q', 'p-b').id == 'q-p-b'
    assert {one.name for one in groups.living_by_id(session).values()} == {
        'a', 'b', 'p-b'}


def test_where_members_are(session):
    running = states.MemberState.RUNNING
    _add(session, made.group(), made.group('b', 'q'),
         made.group('gone', live_key='x', retired_at=1.0))
    _add(session,
         made.member('p-a', 1, host='h2', planned_host='h1', state=running,
                     instance_uuid='i1', expires_at=5.0,
                     egress_limit_bps=5e6, ingress_limit_bps=6e6),
         made.member('p-a', 0, host='h1', planned_host='h1', state=running,
                     instance_uuid='i0', addresses='10.0.0.1'),
         made.member('p-a', 2, host='h3', planned_host='h1',
                     state=states.MemberState.RESERVED, instance_uuid='i2',
                     expires_at=4.0),
         made.member('p-a', 3),
         made.member('p-a', 4, host='h4', planned_host='h5', state=running,
                     instance_uuid='i4'),
         made.member('q-b', 0, host='h3', state=running, instance_uuid='j'),
         made.member('p-gone', 0, host='h9', planned_host='h8',
                     state=running, instance_uuid='k'))
    assert groups.hosts_by_group(session, ['p-a', 'q-b']) == ({
        'p-a': ['h1', 'h2', 'h3', None, 'h4'], 'q-b': ['h3']}, {'p-a': 2})
    assert groups.running_by_plan(session) == {
        'planned': 1, 'other': 2, 'none': 1}
    assert groups.living_vms(session) == [
        ('i0', 'p', running, 'h1', '10.0.0.1', None, None),
        ('i1', 'p', running, 'h2', None, 5e6, 6e6),
        ('i2', 'p', states.MemberState.RESERVED, 'h3', None, None, None),
        ('i4', 'p', running, 'h4', None, None, None),
        ('j', 'q', running, 'h3', None, None, None)]
    assert [one.row_index for one in groups.expired(session, 5.0)] == [2]
    assert len(groups.living_members(session)) == 6
    assert len(groups.living_members(session, ['q-b'])) == 1
    assert groups.member_of(session, 'j').group_id == 'q-b'


def test_what_was_done_stays_measured_when_its_group_retires(session):
    _add(session, made.group(), made.group('b', 'q'))
    _add(session,
         made.coflow('p-a', id='1', state=states.CoflowState.DONE,
                     measured_cct_s=2.0, measured_cct_error_s=0.5,
                     ended_at=4.0),
         made.coflow('p-a', id='2', state=states.CoflowState.ACTIVE,
                     measured_cct_s=2.0, measured_cct_error_s=0.5),
         made.coflow('q-b', id='3', state=states.CoflowState.ACTIVE))
    assert [c.id for c in groups.living_coflows(session, ['q-b'])] == ['3']
    groups.retire(session, session.get(models.Group, 'p-a'), 9.0)
    session.flush()
    one, other, third = (session.get(models.Coflow, name) for name in '123')
    assert (one.measured_cct_s, one.measured_cct_error_s, one.ended_at) == (
        2.0, 0.5, 4.0)
    assert (other.measured_cct_s, other.measured_cct_error_s,
            other.ended_at) == (None, None, 9.0)
    assert (one.why, other.why) == ('', 'ended: no VM of its group is left')
    assert one.state == other.state == states.CoflowState.RETIRED
    assert third.state == states.CoflowState.ACTIVE
    group = session.get(models.Group, 'p-a')
    assert (group.live_key, group.retired_at) == ('p-a', 9.0)


def test_so_many_ignored_hints_are_told(session):
    _add(session, *(models.Event(
        project_id='p', group_name='g', instance_uuid=f'i{i}',
        kind='hint_ignored', detail='d', created_at=1.0)
        for i in range(1001)))
    assert len(records.latest_events(
        session, ['hint_ignored'], 0.0)) == 1000
    assert len(records.list_events(session)) == 100


def test_the_room_of_a_host_is_that_of_its_members(session):
    running = states.MemberState.RUNNING
    demand = {'vcpus': 1.0, 'memory_mb': 2.0, 'disk_gb': 3.0, 'host': 'h'}
    _add(session, made.group())
    _add(session,
         made.member('p-a', 0, state=running, placed_at=None, **demand),
         made.member('p-a', 1, state=running, placed_at=41.0, room_vcpus=11.5,
                     room_memory_mb=14.0, room_disk_gb=99.0, **demand),
         made.member('p-a', 2, state=states.MemberState.PLANNED,
                     expires_at=200.0, **demand))
    found = bookings.ledger(session.connection(), 100.0,
                            {'h': (10.0, 10.0, 10.0)})
    assert found.room('h') == (11.5, 14.0, 16.0)
    assert found.left() == {'h': (8.5, 8.0, 7.0)}
    # Half of the row is planned anew, so it does not count.
    assert bookings.ledger(
        session.connection(), 100.0, {'h': (10.0, 10.0, 10.0)},
        beside=bookings.Beside('p-a', 1, True)).left() == {
            'h': (10.0, 10.0, 10.0)}


def test_hosts_are_forgotten_with_what_is_known_of_them(session):
    names = [f'h{i}' for i in range(records.MOST_IN + 1)]
    for kind in 'host-lossy', 'switch':
        _add(session, *(models.Finding(subject=name, kind=kind, found_at=1.0,
                                       document='') for name in names))
    for pair in ('h0', 'x'), ('x', names[-1]), ('x', 'y'):
        session.merge(_reading(
            src=pair[0], dst=pair[1], rate_bps=1.0, measured_at=1.0))
    _add(session, models.Drain(host='h0', reason='', drained_at=1.0),
         models.Drain(host='x', reason='', drained_at=1.0))
    records.save_progress(session, [], [_host('h0', ''), _host('x', '')])
    records.forget_hosts(session, names)
    session.expire_all()
    assert {one.kind for one in session.query(models.Finding)} == {'switch'}
    assert [(one.src, one.dst)
            for one in records.list_readings(session)] == [('x', 'y')]
    assert operators.drains(session).keys() == {'x'}
    assert [one.host for one in records.list_hosts(session)] == ['x']


def test_profiles_of_more_groups_than_variables_of_a_query(database):
    ids = stored.many_groups(database, 40_001)
    for _ in range(2):
        with database.writer() as session:
            profiles.add(session, 5, dict.fromkeys(
                [*ids, 'gone'], {(0, 1): 10.0}), 50_000)
    with database.reader() as session:
        found = {row.group_id: pairs.decode(row.pairs)
                 for row in session.query(models.ProfileHour)}
    assert found == dict.fromkeys(ids, {(0, 1): 20.0})


def test_claims_take_room_until_they_end(session):
    shown = {'h': (8.0, 8.0, 8.0)}
    demand = {'vcpus': 1.0, 'memory_mb': 2.0, 'disk_gb': 3.0}
    bookings.claim(session, 'move', 'h', demand, True, 50.0)
    bookings.claim(session, 'other', 'h', demand, False, 60.0)
    session.flush()
    connection = session.connection()

    def left():
        session.flush()
        found = bookings.ledger(connection, 0.0, shown).left()
        assert found == bookings.ledger(connection, 0.0, shown, ['h']).left()
        return found['h']

    assert left() == (6, 4, 2)
    assert bookings.ledger(connection, 0.0, shown, beside=bookings.Beside(
        instance_uuid='move')).left() == {'h': (7, 6, 5)}
    assert bookings.claim_of(session, 'move').host == 'h'
    for now_s, n_over, n_left, room in (
            (50.0, 0, 2, (6, 4, 2)), (50.1, 1, 1, (7, 6, 5)),
            (60.1, 1, 1, (8, 8, 8)), (60.1 + booking.MOVE_S, 0, 1, (8, 8, 8)),
            (60.2 + booking.MOVE_S, 1, 0, (8, 8, 8))):
        assert bookings.count_expired(session, now_s) == n_over
        bookings.settle_expired(session, now_s)
        assert left() == room
        assert session.query(models.Claim).count() == n_left
    bookings.claim(session, 'move', 'h', demand, True, 50.0)
    session.flush()
    bookings.release(session, 'move')
    assert bookings.claim_of(session, 'move') is None


def test_the_newest_of_very_many_coflows(session):
    row = {column.name: column.default.arg
           for column in models.Coflow.__table__.columns
           if column.default is not None}
    groups.insert(session, models.Coflow, [row | {
        'id': str(i), 'project_id': 'p', 'name': 'c', 'state': 'done',
        'n_vms': 2, 'n_flows': 1, 'size_bytes': 5.0, 'tm': '[]',
        'created_at': float(i)} for i in range(5001)])
    found = records.list_coflows(session)
    assert (len(found), found[0].id, found[-1].id) == (5000, '1', '5000')


def test_a_promise_that_is_kept_or_late_is_none(session):
    """Only what is still to come, of what still may send."""
    session.add(stored.group())
    session.flush()
    for name, values in {
            'now': {'deadline_at': 50.0}, 'soon': {'deadline_at': 50.1},
            'wish': {'deadline_at': 90.0, 'is_promised': False},
            'over': {'deadline_at': 90.0,
                     'state': states.CoflowState.RETIRED},
            'never': {'deadline_at': None}}.items():
        session.add(stored.coflow('p-a', **{
            'id': name, 'is_promised': True, **values}))
    session.flush()
    assert groups.promised(session, 50.0) == {'soon': 'p-a'}


def test_all_processes_have_one_secret():
    database = stored.database()
    with database.writer() as session:
        assert groups.secret(session) == 's'
        session.execute(sa.delete(models.Cluster))
        assert (groups.secret(session), groups.generation(session)) == ('', 0)
