# SPDX-License-Identifier: Apache-2.0

"""Which member of which group an instance is."""

import json

import pytest

from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import hints as hint_reader
from virtco.db import bookings
from virtco.db import models
from virtco.model import states
from virtco.objects import group_rules
from virtco.objects import new_groups
from virtco.place import membership

State = states.MemberState
BYTES = 123e9


@pytest.fixture
def ask():
    return asking.Asking()


def look(ask, *args, **values):
    """The view of a question."""
    request = asking.request(*args, **values)
    hint = hint_reader.outline(request.hints, request.metadata,
                               ask.reader.limits).read(ask.reader.limits)
    with ask.database.reader() as session:
        return ask.reader.view(session, request, hint)


def kinds(view):
    return [kind for kind, _detail in view.notes]


def vacant(group_id, row):
    return models.Member(group_id=group_id, row_index=row,
                         state=states.MemberState.VACANT)


def add(ask, *members, n_vms=3, coflows=(), **values):
    """A group named a with those members beside vacant ones."""
    group = stored.group(n_vms=n_vms, **values)
    rows = {member.row_index: member for member in members}
    stored.add(ask.database, group, *(
        rows.get(row) or vacant('p-a', row)
        for row in range(n_vms)), *coflows)


def test_a_new_group_begins_vacant(ask):
    with ask.database.writer() as session:
        session.get(models.Cluster, 1).generation = 7
    stored.add(ask.database, models.Project(
        project_id='p', priority_class=2, weight=1.5))
    view = look(ask, 1)
    assert (view.generation, view.is_new, view.keeps_matrix) == (
        7, True, True)
    assert (view.group.project_id, view.group.name, view.group.n_vms,
            view.group.live_key, view.group.created_at, view.group.app) == (
                'p', 'a', 3, '', asking.NOW_S, '')
    assert [(m.row_index, m.group_id, m.state, m.instance_uuid, m.host,
             m.vcpus, m.memory_mb, m.disk_gb) for m in view.members] == [
        (row, view.group.id, State.VACANT, None, None, 0, 0, 0)
        for row in range(3)]
    assert view.member is view.members[1]
    assert view.notes == []
    assert view.free == dict.fromkeys(('h0', 'h1', 'h2'), asking.FREE)
    (coflow,) = view.coflows
    assert (coflow.group_id, coflow.project_id, coflow.name, coflow.position,
            coflow.state, coflow.n_vms, coflow.n_flows, coflow.size_bytes
            ) == (view.group.id, 'p', 'a', 0, states.CoflowState.PLANNED, 3,
                  3, BYTES)
    assert (coflow.iteration, coflow.iterations, coflow.sent_bytes,
            coflow.is_estimated, coflow.priority_class, coflow.weight,
            coflow.created_at) == (0, 1, 0, False, 2, 1.5, asking.NOW_S)
    assert [matrix.size_bytes for matrix in view.matrices] == [BYTES]


@pytest.mark.parametrize(('n', 'is_noted'), [
    (1, False), (2, True), (3, False), (4, False)])
def test_rows_that_are_left_are_noted(ask, n, is_noted):
    """One server asks alone; more than one, and fewer than the rows, do
    not fill the group.
    """
    assert kinds(look(ask, num_instances=n)) == ['rows_left'] * is_noted
    add(ask)
    assert kinds(look(ask, matrix=None, num_instances=n)) == []


def test_bytes_of_a_vm_to_itself_are_noted(ask):
    matrix = [
        {'name': 'a', 'tm': [['5GB', 1, 0], [0, 0, 0], [0, 0, 7]]},
        {'name': 'b', 'tm': [['1GB', 0, 0], [0, 0, 1], [0, 0, 0]]}]
    view = look(ask, matrix=matrix)
    assert view.notes == [(
        'self_flows', 'bytes of a VM to itself are ignored: '
                      'VM 0 6 GB, VM 2 7 B')]
    assert {end for one in view.matrices for end in one.matrix.rows()} == {
        (0, 1, 1.0), (1, 2, 1.0)}
    add(ask)
    assert 'self_flows' not in kinds(look(ask, matrix=matrix))


@pytest.mark.parametrize(('groups', 'kind'), [
    ('never', 'preflight_off'), ('hinted', 'preflight'),
    ('always', 'preflight')])
def test_whether_hosts_are_checked_is_said(groups, kind):
    ask = asking.Asking(probe={'check_groups': groups})
    wanted = {'virtco:preflight': 'true'}
    assert kinds(look(ask, hints=wanted)) == [kind]
    assert kinds(look(ask)) == []
    add(ask)
    assert kinds(look(ask, matrix=None, hints=wanted)) == []


def test_a_vm_takes_its_row_or_the_next_free_one(ask):
    add(ask, stored.member('p-a', 1, 'h1'))
    rows = {launch: look(ask, launch, matrix=None).member.row_index
            for launch in (0, 1, 2, 3, 4, 5)}
    # The launch goes round, and so does the search.
    assert rows == {0: 0, 1: 2, 2: 2, 3: 0, 4: 2, 5: 2}
    assert look(ask, 9, matrix=None, launch_index=None
                ).member.row_index == 0
    asked = {index: look(ask, 0, matrix=None, hints={
        'virtco:index': str(index)}) for index in (0, 1, 2)}
    assert {index: view.member.row_index
            for index, view in asked.items()} == {0: 0, 1: 2, 2: 2}
    assert {index: kinds(view) for index, view in asked.items()} == {
        0: [], 1: ['index_taken'], 2: []}
    assert asked[1].notes[0][1] == (
        'row 1 has a VM already, this one got 2')
    # Who names no row gets another one without a word.
    assert kinds(look(ask, 1, matrix=None)) == []


def test_the_search_for_a_row_goes_round(ask):
    add(ask, stored.member('p-a', 2, 'h1'))
    view = look(ask, 2, matrix=None)
    assert view.member.row_index == 0


def test_a_group_without_a_free_row(ask):
    add(ask, *(stored.member('p-a', row, 'h1') for row in range(3)))
    with pytest.raises(exception.HintInvalid, match='all 3 have a VM'):
        look(ask, 7, matrix=None)


def test_an_index_beyond_the_rows(ask):
    add(ask)
    with pytest.raises(exception.HintInvalid, match='between 0 and 2'):
        look(ask, matrix=None, hints={'virtco:index': '3'})


def test_one_that_is_a_member_stays_that_row(ask):
    add(ask, stored.member('p-a', 2, 'h1', instance_uuid='vm-0'))
    view = look(ask, 0, matrix=None, hints={'virtco:coflow': 'other'})
    assert (view.group.name, view.member.row_index) == ('a', 2)
    assert view.member is view.members[2]


@pytest.mark.parametrize(('state', 'is_advice'), [
    (State.VACANT, False), (State.PLANNED, False), (State.RESERVED, True),
    (State.RUNNING, True)])
def test_one_that_has_its_host_is_advised(ask, state, is_advice):
    add(ask, stored.member('p-a', 0, 'h1', instance_uuid='vm-0',
                           state=state))
    view = look(ask, matrix=None)
    assert view.is_advice is is_advice
    planned = view.planned()
    if state not in (State.PLANNED, State.RESERVED):
        assert planned is None
        return
    assert (planned.group_id, planned.group_name, planned.index,
            planned.host) == ('p-a', 'a', 0, 'h1')
    view.member.host = None
    assert view.planned() is None


def test_a_group_keeps_the_matrix_it_began_with(ask):
    tm = '[[0,1,100000000000],[0,2,20000000000],[1,2,3000000000]]'
    first = look(ask).matrices[0]
    add(ask, coflows=[
        stored.coflow('p-a', tm=tm, name='a', size_bytes=BYTES,
                      served_by=first.order),
        # What was announced since does not count, though it is sent.
        stored.coflow('p-a', id='x', position=1, expires_at=9.0),
        stored.coflow('p-a', id='y', position=2, expires_at=9.0,
                      state=states.CoflowState.DONE)])
    same = look(ask)
    assert (kinds(same), same.keeps_matrix, same.is_new) == ([], True, False)
    assert [matrix.size_bytes for matrix in same.matrices] == [BYTES, 175]
    assert [coflow.position for coflow in same.coflows] == [0, 1, 2]
    other = look(ask, matrix=[[0, 1, 1]] * 3)
    assert (kinds(other), other.keeps_matrix) == (['matrix_differs'], False)
    assert kinds(look(ask, matrix=None)) == []


def test_no_group_and_no_matrix(ask):
    with pytest.raises(exception.HintInvalid, match='virtco:tm beside it'):
        look(ask, matrix=None)


# A hint that is longer than Nova's request is no hint.
@pytest.mark.parametrize('n', [0, 200_000])
def test_a_registered_matrix(ask, n):
    stored.add(ask.database, stored.group(), *(stored.coflow(
        whose, id=id_, state=states.CoflowState.REGISTERED,
        tm=json.dumps(asking.MATRIX) + ' ' * n, project_id=project_id)
        for id_, whose, project_id in (
            ('own', None, 'p'), ('of-a-group', 'p-a', 'p'),
            ('foreign', None, 'q'))))

    def ref(name, index=0):
        return look(ask, matrix=None, hints={
            'virtco:coflow': 'new', 'virtco:tm_ref': name,
            'virtco:index': str(index)})

    view = ref('own', 2)
    assert [matrix.size_bytes for matrix in view.matrices] == [BYTES]
    assert view.member.row_index == 2
    for wrong in ('of-a-group', 'foreign', 'none'):
        with pytest.raises(exception.HintInvalid, match='registered in this'):
            ref(wrong)
    with pytest.raises(exception.HintInvalid, match='between 0 and 2'):
        ref('own', 3)


def test_an_application_without_a_matrix(ask):
    app = {'virtco:app': 'sort'}
    view = look(ask, matrix=None, hints=app)
    assert (view.group.app, view.group.n_vms) == ('sort', 3)
    assert kinds(view) == ['app_unknown']
    # A note on where the matrix came from is no other matrix.
    assert view.keeps_matrix
    assert look(ask, hints=app).matrices[0].size_bytes == BYTES


def test_what_is_booked_by_others(ask):
    """What the group only plans is planned anew with a member.
    """
    young = {'expires_at': asking.NOW_S + 60, 'vcpus': 1.0,
             'memory_mb': 2.0, 'disk_gb': 3.0, 'instance_uuid': None}
    add(ask, stored.member('p-a', 0, 'h0', **young | {
        'state': State.RESERVED, 'instance_uuid': 'vm-0'}),
        stored.member('p-a', 1, 'h1', **young | {'state': State.PLANNED}),
        stored.member('p-a', 2, 'h2', **young | {
            'state': State.RESERVED, 'instance_uuid': 'vm-2',
            'placed_at': asking.NOW_S, 'room_vcpus': 2.0,
            'room_memory_mb': 4096.0, 'room_disk_gb': 90.0}))
    stored.add(
        ask.database, stored.group('b'), *(
            stored.member('p-b', row, host, **young | {
                'state': State.PLANNED})
            for row, host in enumerate(('h3', 'h0', 'unseen'))))
    view = look(ask, matrix=None, hosts=('h0', 'h1', 'h2', 'h3'))
    # Nova's numbers may lack the VM of row 2, as the row remembers.
    less = (1, 4094, 87)
    assert view.planned().host == 'h0'
    assert view.free == dict.fromkeys(('h1', 'h2', 'h3'), less) | {
        'h0': (0, 4092, 84)}
    view = look(ask, matrix=None, hosts=('h1', 'h2'))
    assert view.is_advice
    assert view.free == {'h1': less, 'h2': less}
    view = look(ask, 1, matrix=None, hosts=('h1', 'h2'))
    assert not view.is_advice
    assert view.free == {'h1': asking.FREE, 'h2': less}


def test_vms_that_run_for_long_hold_nothing(ask):
    """They count for the room of their host, where somebody is young."""
    old = {'placed_at': asking.NOW_S - 61, 'vcpus': 5.0, 'memory_mb': 7.0,
           'disk_gb': 11.0}
    add(ask, stored.member('p-a', 0, 'h0', **old),
        stored.member('p-a', 1, 'h1', **old))
    stored.add(ask.database, stored.group('b'), stored.member(
        'p-b', 0, 'h0', state=State.PLANNED, instance_uuid=None,
        expires_at=asking.NOW_S + 1))
    view = look(ask, 2, matrix=None)
    assert view.free == {'h0': (1, 4094, 87), 'h1': asking.FREE,
                         'h2': asking.FREE}
    shown = {'h0': (2.0, 4096.0, 90.0), 'h1': (2.0, 3.0, 4.0)}
    with ask.database.reader() as session:
        for now_s, rooms in (
                (asking.NOW_S, [(2 + 5, 4096 + 7, 90 + 11), (7, 10, 15)]),
                # One that came within the last minute is not settled.
                (asking.NOW_S - 1.5, [(2, 4096, 90), (2, 3, 4)])):
            found = bookings.ledger(session.connection(), now_s, shown, shown)
            assert [found.room(host) for host in shown] == rooms


def test_a_vm_that_came_lately_holds_what_nova_may_not_show(ask):
    """Before a minute is over, whatever else its host has."""
    add(ask)
    stored.add(ask.database, stored.group('b'), *(stored.member(
        'p-b', row, f'h{row}', placed_at=asking.NOW_S - age_s)
        for row, age_s in enumerate((59.5, 60.5))))
    free = look(ask, 0, matrix=None).free
    assert (free['h0'], free['h1']) == ((1, 4094, 87), asking.FREE)


def test_when_a_reservation_ends():
    ask = asking.Asking(placement={'reservation_ttl_s': 50})
    assert ask.reader.expiry_s() == asking.NOW_S + 50
    assert ask.reader.clock() == asking.NOW_S


@pytest.mark.parametrize(('bound', 'most', 'said'), [
    ('max_groups_per_project', 2, 'groups of the project'),
    ('max_flows_per_project', 6, 'flows of the project'),
    (None, 175 + BYTES, 'bytes of the project')])
def test_bounds_of_a_project(bound, most, said, monkeypatch):
    for less, fits in ((0, True), (1, False)):
        if bound is None:
            monkeypatch.setattr(new_groups, 'MAX_PROJECT_BYTES', most - less)
        ask = asking.Asking(limits={bound: int(most) - less} if bound else {})
        add(ask, name='other', id='p-a', coflows=[stored.coflow('p-a')])
        if fits:
            assert look(ask).is_new
        else:
            with pytest.raises(exception.HintInvalid, match=said):
                look(ask)


def test_rows_of_a_request():
    """Those that its VMs have, and the next that it may take."""
    def rows(asked, n, *taken, key='r'):
        members = [vacant('g', row) for row in range(6)]
        for row, whose in taken:
            members[row].instance_uuid = f'vm-{row}'
            members[row].reservation_id = whose
        return membership.batch_rows(
            asking.request(num_instances=n, reservation_id=key), members,
            members[asked])

    assert rows(0, 1) == {0}
    assert rows(2, 3) == {2, 3, 4}
    # From the asked one on, then from the first.
    assert rows(4, 4) == {4, 5, 0, 1}
    assert rows(2, 3, (3, 'other')) == {2, 4, 5}
    assert rows(2, 3, (0, 'r'), (3, 'r')) == {0, 2, 3}
    assert rows(2, 4, (0, 'r')) == {0, 2, 3, 4}
    assert rows(2, 9, (3, 'other')) == {0, 1, 2, 4, 5}
    # Without a key of its own a request knows no VM of its own.
    assert rows(2, 2, (0, ''), key='') == {2, 3}


def test_a_server_group_has_the_rows_of_its_instances_and_of_a_request():
    """Hosts count only where instances of no row are."""
    members = [stored.member('g', row, f'h{row}') for row in range(4)]
    found = membership.server_group(asking.request(server_group={
        'policy': 'anti-affinity', 'members': ['g-0', 'g-2', 'other'],
        'hosts': ['h9', 'h2', 'h1', 'h0']}), members, {3})
    assert found == group_rules.ServerGroup(
        'anti-affinity', (0, 2, 3), ('h1', 'h9'))
    assert membership.server_group(asking.request(), members, {3}) is None


def test_hosts_of_a_server_group_are_taken_but_by_members_that_stay():
    """Not by the asked one, nor by a row that is only planned."""
    members = [stored.member('g', row, f'h{row}') for row in range(4)]
    members[3].instance_uuid = None
    group = {'policy': 'affinity', 'members': ['g-0', 'g-1'],
             'hosts': [f'h{row}' for row in range(4)], 'max_per_host': 2}
    found = membership.server_group(
        asking.request(server_group=group, instance_uuid='g-0'), members,
        {3})
    assert found == group_rules.ServerGroup(
        'affinity', (0, 1, 3), ('h0', 'h2', 'h3'), 2)


def test_events_are_written_down(ask):
    with ask.database.writer() as session:
        ask.reader.note(session, asking.request(4), [('k', 'd'), ('l', 'e')],
                        'a', 'g')
    assert [(event['kind'], event['detail'], event['group_name'],
             event['group_id'], event['instance_uuid'],
             event['project_id'], event['created_at'])
            for event in ask.rows(models.Event)] == [
        (kind, detail, 'a', 'g', 'vm-4', 'p', asking.NOW_S)
        for kind, detail in ('kd', 'le')]
