# SPDX-License-Identifier: Apache-2.0

"""What is written down of a plan, and when it is not valid any more."""

import math

import pytest
import sqlalchemy as sa

from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import hints as hint_reader
from virtco.db import groups as db_groups
from virtco.db import models
from virtco.model import booking
from virtco.model import snapshot
from virtco.model import states
from virtco.place import commit

State = states.MemberState
TTL_S = 300
UNTIL_S = asking.NOW_S + TTL_S


@pytest.fixture
def ask():
    return asking.Asking(placement={'reservation_ttl_s': TTL_S})


def plan(*hosts, coflow_cct_s=(2.5,), **values):
    return snapshot.Plan(**{
        'hosts': hosts, 'cct_s': 3.0, 'coflow_cct_s': coflow_cct_s,
        'objective': snapshot.Objective.ISOLATED, 'objective_s': 4.0,
        'lower_bound_s': 1.5, 'gap': 1.0, 'method': snapshot.Method.EXHAUSTIVE,
        'bottleneck': 'h1 egress', 'notes': ('one', 'two')} | values)


class Attempt:
    """What one read; ``write`` is its commit."""

    def __init__(self, ask, *args, **values):
        self.ask = ask
        self.request = asking.request(*args, **values)
        limits = ask.reader.limits
        hint = hint_reader.outline(self.request.hints, {},
                                   limits).read(limits)
        with ask.database.reader() as session:
            self.view = ask.reader.view(session, self.request, hint)

    def write(self, found, rows=None):
        with self.ask.database.writer() as session:
            commit.Commit(
                self.ask.reader, session, self.request, self.view,
                range(len(found.hosts)) if rows is None else rows,
                found).write()


def members(ask):
    return {row['row_index']: row for row in ask.rows(models.Member)}


def states_of(ask):
    return {row: (one['state'], one['host'], one['instance_uuid'])
            for row, one in members(ask).items()}


def generation(ask):
    with ask.database.reader() as session:
        return db_groups.generation(session)


def test_a_new_group(ask):
    Attempt(ask, 1).write(plan('h0', 'h1', 'h2'))
    rows = members(ask)
    assert states_of(ask) == {
        0: (State.PLANNED, 'h0', None), 1: (State.RESERVED, 'h1', 'vm-1'),
        2: (State.PLANNED, 'h2', None)}
    for one in rows.values():
        assert one['planned_host'] == one['host']
        assert one['expires_at'] == UNTIL_S
        assert one['placed_at'] == asking.NOW_S
        assert (one['vcpus'], one['memory_mb'], one['disk_gb']) == (
            asking.FLAVOR)
        # What Nova showed on hosts where nothing was booked.
        assert (one['room_vcpus'], one['room_memory_mb'],
                one['room_disk_gb']) == asking.FREE
    assert (rows[1]['display_name'], rows[1]['reservation_id']) == (
        'v1', 'r')
    (group,) = ask.rows(models.Group)
    assert {name: group[name] for name in (
        'cct_s', 'lower_bound_s', 'gap', 'objective_s', 'method',
        'bottleneck', 'why', 'n_vms')} == {
            'cct_s': 3.0, 'lower_bound_s': 1.5, 'gap': 1.0,
            'objective_s': 4.0, 'method': 'exhaustive search',
            'bottleneck': 'h1 egress',
            'why': 'bottleneck: h1 egress; one; two', 'n_vms': 3}
    assert [one['cct_s'] for one in ask.rows(models.Coflow)] == [2.5]
    assert generation(ask) == 2


def test_names_and_times_that_no_column_holds(ask):
    attempt = Attempt(ask, display_name='n' * 256)
    attempt.request = asking.request(display_name='n' * 300)
    attempt.write(plan('h0', 'h1', 'h2', gap=math.inf,
                       bottleneck='b' * 600))
    assert members(ask)[0]['display_name'] == 'n' * 255
    (group,) = ask.rows(models.Group)
    assert (group['gap'], group['bottleneck']) == (None, 'b' * 520)
    taken = commit.taken_by(asking.request(
        display_name=None, reservation_id=None, egress_cap_bps=7.0,
        ingress_burst_bytes=8.0), 5.0)
    assert taken == {
        'instance_uuid': 'vm-0', 'display_name': '', 'reservation_id': '',
        'expires_at': 5.0, 'vcpus': 1, 'memory_mb': 512, 'disk_gb': 3,
        'egress_cap_bps': 7.0, 'ingress_cap_bps': None,
        'egress_burst_bytes': 0.0, 'ingress_burst_bytes': 8.0}
    assert commit.taken_by(asking.request(
        reservation_id='r' * 255), 5.0)['reservation_id'] == 'r' * 255


def test_a_group_is_planned_anew(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    ask.now_s += 10
    second = Attempt(ask, 1)
    second.write(plan('h0', 'h2', 'h1', cct_s=7.0, coflow_cct_s=(6.0,)))
    assert states_of(ask) == {
        0: (State.RESERVED, 'h0', 'vm-0'), 1: (State.RESERVED, 'h2', 'vm-1'),
        2: (State.PLANNED, 'h1', None)}
    rows = members(ask)
    assert [rows[row]['expires_at'] for row in range(3)] == [
        UNTIL_S, UNTIL_S + 10, UNTIL_S + 10]
    assert [rows[row]['planned_host'] for row in range(3)] == [
        'h0', 'h2', 'h1']
    (group,) = ask.rows(models.Group)
    (coflow,) = ask.rows(models.Coflow)
    assert (group['cct_s'], coflow['cct_s']) == (7.0, 6.0)
    assert generation(ask) == 3


def test_rows_that_a_plan_leaves_out_are_vacant_again(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    Attempt(ask, 1).write(plan('h0', 'h1'), rows=(0, 1))
    assert states_of(ask) == {
        0: (State.RESERVED, 'h0', 'vm-0'), 1: (State.RESERVED, 'h1', 'vm-1'),
        2: (State.VACANT, None, None)}
    assert members(ask)[2]['expires_at'] is None
    # A VM that is left out stays where it is.
    Attempt(ask, 2).write(plan('h2'), rows=(2,))
    assert states_of(ask)[0] == (State.RESERVED, 'h0', 'vm-0')


def test_only_live_coflows_are_told_their_times(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    (group,) = ask.rows(models.Group)
    stored.add(ask.database, stored.coflow(
        group['id'], id='done', position=-1, cct_s=1.0,
        state=states.CoflowState.DONE), stored.coflow(
            group['id'], id='later', position=1))
    Attempt(ask, 1).write(plan('h0', 'h1', 'h2', coflow_cct_s=(8.0, 9.0)))
    assert [one['cct_s'] for one in sorted(
        ask.rows(models.Coflow), key=lambda one: one['position'])] == [
            1.0, 8.0, 9.0]


def test_advice_books_room_until_nova_moves_the_vm(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.row_index == 0).values(
                state=State.RUNNING, expires_at=None))
    before = generation(ask)
    again = Attempt(ask, 0)
    assert again.view.is_advice
    again.write(plan('h2', 'h1', 'h0'))
    rows = members(ask)
    assert (rows[0]['host'], rows[0]['planned_host']) == ('h0', 'h2')
    assert (rows[1]['host'], rows[2]['host']) == ('h1', 'h2')
    assert generation(ask) == before + 1
    (claim,) = ask.rows(models.Claim)
    assert (claim['instance_uuid'], claim['host'], claim['is_member'],
            claim['vcpus'], claim['expires_at']) == (
        'vm-0', 'h2', True, 1.0, ask.now_s + booking.MOVE_S)
    # Asked again, it is not in its own way; another one is.
    Attempt(ask, 0, hosts={'h2': (2, 4096, 90)}).write(plan(
        'h2', 'h1', 'h0'))
    assert not any(Attempt(ask, 9, hints={'virtco:coflow': 'b'}, hosts={
        'h2': (2, 4096, 90)}).view.free['h2'][:1])


def test_one_that_is_not_built_yet_is_advised_without_a_trace(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    before = states_of(ask), members(ask)
    Attempt(ask, 0).write(plan('h2', 'h1', 'h0'))
    assert (states_of(ask), members(ask)) == before


def test_others_may_commit_meanwhile(ask):
    attempt = Attempt(ask, 0)
    with ask.database.writer() as session:
        db_groups.advance(session.connection())
    attempt.write(plan('h0', 'h1', 'h2'))
    assert states_of(ask)[0] == (State.RESERVED, 'h0', 'vm-0')
    assert generation(ask) == 3


def other(ask, host, demand, **values):
    """Another group plans to use so much of a host."""
    with ask.database.writer() as session:
        db_groups.advance(session.connection())
        session.add(stored.group('b'))
        session.flush()
        session.add(stored.member(
            'p-b', 0, host, instance_uuid=None, expires_at=UNTIL_S,
            **{'state': State.PLANNED} | demand | values))


@pytest.mark.parametrize(('host', 'vcpus', 'is_valid'), [
    ('h0', 1.0, True),   # one of two is left, for one of the plan's
    ('h0', 1.5, False), ('h0', 2.0, False),
    ('h1', 2.0, True),   # nobody goes there
    ('h2', 0.0, True), ('h2', 0.5, False)])
def test_a_plan_holds_while_there_is_room(ask, host, vcpus, is_valid):
    attempt = Attempt(ask, 0)
    other(ask, host, {'vcpus': vcpus, 'memory_mb': 0.0, 'disk_gb': 0.0})
    found = plan('h0', 'h2', 'h2')
    if is_valid:
        attempt.write(found)
        assert states_of(ask)[0] is not None
    else:
        with pytest.raises(exception.Conflict, match='room h0'):
            attempt.write(found)
        assert [one['name'] for one in ask.rows(models.Group)] == ['b']


def test_a_plan_ends_with_the_members_it_knew(ask):
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    stale = Attempt(ask, 1)
    Attempt(ask, 2).write(plan('h0', 'h1', 'h2'))
    with pytest.raises(exception.Conflict):
        stale.write(plan('h0', 'h1', 'h2'))
    assert states_of(ask)[1] == (State.PLANNED, 'h1', None)


def test_a_row_goes_to_one_instance(ask):
    """Another one that came in between without counting the generation."""
    Attempt(ask, 0).write(plan('h0', 'h1', 'h2'))
    stale = Attempt(ask, 1)
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.row_index == 1).values(instance_uuid='x'))
    with pytest.raises(exception.Conflict):
        stale.write(plan('h0', 'h1', 'h2'))
    assert states_of(ask)[1][2] == 'x'


def test_notes_are_written_with_the_plan(ask):
    attempt = Attempt(ask, 0)
    attempt.view.notes.append(('kind', 'detail'))
    attempt.write(plan('h0', 'h1', 'h2'))
    (group,) = ask.rows(models.Group)
    assert [(one['kind'], one['detail'], one['group_id'])
            for one in ask.rows(models.Event)] == [
                ('kind', 'detail', group['id'])]


def test_a_plan_is_of_these_rows_and_coflows(ask):
    attempt = Attempt(ask, 0)
    for wrong, rows in ((plan('h0', 'h1', 'h2', coflow_cct_s=(1.0, 2.0)),
                         (0, 1, 2)), (plan('h0', 'h1'), (0, 1, 2))):
        with pytest.raises(ValueError, match='zip'):
            attempt.write(wrong, rows)
    assert ask.rows(models.Group) == []
