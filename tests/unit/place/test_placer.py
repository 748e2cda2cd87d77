# SPDX-License-Identifier: Apache-2.0

"""Nova's question is answered: plans, siblings, advice, refusals."""

import math

import msgspec
import pytest
import sqlalchemy as sa

from tests.unit.place import asking
from virtco import exception
from virtco.db import models
from virtco.model import cluster
from virtco.model import states
from virtco.place import deadline as deadlines
from virtco.place import membership

State = states.MemberState
OF = ('h0', 'h1', 'h2', 'h3')


@pytest.fixture
def ask():
    return asking.Asking()


def hosts_of(answer):
    return [one.host for one in answer.hosts]


def set_running(ask, row=0):
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.row_index == row).values(
                state=State.RUNNING, expires_at=None))


def kinds(ask):
    return [one['kind'] for one in ask.rows(models.Event)]


def test_the_first_plans_for_all():
    # However slow the machine is, the plan is proven.
    ask = asking.Asking(placement={'budget_s': 30.0})
    answer = ask.place(0, hosts=OF)
    assert (answer.status, answer.group_name, answer.row) == (
        'planned', 'a', 0)
    # The two that send most to each other share a host.
    assert answer.rows['0'] == answer.rows['1'] == answer.host
    assert answer.rows['2'] != answer.host
    assert answer.hosts[0].host == answer.host
    assert [one.rank for one in answer.hosts] == list(range(4))
    assert sorted(hosts_of(answer)) == sorted(OF)
    assert answer.cct_s == pytest.approx(answer.lower_bound_s)
    assert answer.bound_scope == 'any placement under these constraints'
    assert answer.method and answer.bottleneck
    assert answer.allowed is None and answer.refused is None
    (group,) = ask.rows(models.Group)
    assert answer.group == group['id']
    decision = ask.decisions.find(group['id'])
    assert decision.rows == (0, 1, 2)
    assert list(decision.plan.hosts) == [answer.rows[str(row)]
                                         for row in range(3)]
    assert decision.spent_s['solve'] >= 0


def test_who_has_a_host_keeps_it_where_none_has_room(ask):
    """Nova's numbers count the VM itself, or others that came."""
    first = ask.place(0)
    again = ask.place(0, hosts={first.host: (0.0, 0.0, 0.0)})
    assert (again.status, again.host) == ('planned', first.host)
    assert (hosts_of(again), again.why) == ([first.host], 'as planned')
    assert (again.cct_s, again.method) == (first.cct_s, first.method)


def test_a_reservation_that_ends_while_it_is_read_is_none(ask, monkeypatch):
    first = ask.place(0)
    planned = membership.View.planned

    def late(view):
        found = planned(view)
        monkeypatch.undo()
        with ask.database.writer() as session:
            session.execute(sa.update(models.Member).where(
                models.Member.instance_uuid == 'vm-0').values(
                    instance_uuid=None, state=State.VACANT, host=None))
        return found

    monkeypatch.setattr(membership.View, 'planned', late)
    # Another question, as the very same one has its answer.
    again = ask.place(0, hosts={name: (8, 8192, 90)
                                for name in ('h7', first.host)})
    assert again.status == 'planned'
    (row,) = [row for row in ask.rows(models.Member)
              if row['instance_uuid'] == 'vm-0']
    assert (row['host'], row['state']) == (again.host, State.RESERVED)


def test_the_same_question_has_the_same_answer(ask):
    """Also after passes of Nova's that ended without a plan."""
    first = ask.place(0)
    assert ask.place(0) == first
    assert ask.place(0, unplanned_passes=3) == first
    # Others have come meanwhile.
    assert ask.place(0, hosts=dict.fromkeys(
        ('h0', 'h1', 'h2'), (1, 2048, 80))) == first
    assert len(ask.rows(models.Placement)) == 1
    # The answer holds while the VM is where it was told to be.
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.row_index == 0).values(
                state=State.RUNNING, host='elsewhere'))
    assert ask.place(0) != first
    with ask.database.writer() as session:
        session.execute(sa.delete(models.Member))
        session.execute(sa.delete(models.Coflow))
        session.execute(sa.delete(models.Group))
    assert ask.place(0).group != first.group


def test_a_question_about_a_vm_that_runs_is_answered_anew(ask):
    """As the one of its launch was, but what is free has changed since."""
    ask.place(0)
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.instance_uuid == 'vm-0').values(
                state=State.RUNNING))
    ask.now_s += 5
    ask.place(0)
    (row,) = ask.rows(models.Placement)
    assert row['updated_at'] == asking.NOW_S + 5


def test_a_hint_that_was_of_no_use_is_looked_at_again(ask):
    """Its group may be there by now, or there may be room for one more."""
    ignored = ask.place(1, matrix=None)
    assert ask.place(1, matrix=None) == ignored
    assert (ignored.status, kinds(ask)) == ('ignored', ['hint_ignored'])
    group = ask.place(0).group
    found = ask.place(1, matrix=None)
    assert (found.status, found.group) == ('planned', group)


def test_another_question_about_an_instance_replaces_its_answer(ask):
    ask.place(0)
    ask.now_s += 5
    ask.place(0, hosts=('h0', 'h1', 'h2', 'h7'))
    (row,) = ask.rows(models.Placement)
    assert row['updated_at'] == asking.NOW_S + 5
    assert 'h7' in row['answer'] and row['project_id'] == 'p'


def test_no_hint_no_opinion(ask):
    answer = ask.placer.place(msgspec.structs.replace(
        asking.request(7), hints={}), deadlines.Deadline(60))
    assert (answer.status, answer.why, hosts_of(answer)) == (
        'neutral', 'no hint', ['h0', 'h1', 'h2'])
    assert ask.rows(models.Placement) == []


def test_a_bad_hint_is_ignored_and_noted_once(ask):
    bad = {'virtco:index': '9'}
    first = ask.place(0, hints=bad)
    assert (first.status, first.group) == ('ignored', None)
    assert ask.place(0, hints=bad) == first
    assert kinds(ask) == ['hint_ignored']
    assert ask.counts.ignored_hints._value.get() == 1
    assert [one['group_name'] for one in ask.rows(models.Event)] == ['a']


def test_a_name_that_no_column_holds_is_noted_by_its_beginning(ask):
    answer = ask.place(0, hints={'virtco:coflow': 'n' * 256})
    assert answer.status == 'ignored'
    assert [one['group_name'] for one in ask.rows(models.Event)] == [
        'n' * 255]


def test_a_name_that_no_database_holds_is_noted_as_a_text(ask):
    answer = ask.place(0, hints={'virtco:coflow': 'a\0b'},
                       metadata={'virtco:coflow': 'm'})
    assert answer.status == 'ignored'
    assert [one['group_name'] for one in ask.rows(models.Event)] == [
        r'a\x00b']


def test_a_bad_hint_for_a_group_that_lives(ask):
    group = ask.place(0).group
    answer = ask.place(1, matrix=None, hints={'virtco:index': '9'})
    assert (answer.status, answer.group) == ('ignored', group)
    assert ask.rows(models.Event)[0]['group_id'] == group


def test_a_host_that_a_sibling_cannot_have_is_planned_anew(ask):
    first = ask.place(0, hosts=OF)
    full = first.rows['1']
    offers = {host: asking.FREE for host in OF if host != full}
    second = ask.place(1, hosts=offers)
    assert second.host != full
    assert second.status == 'planned' and second.row == 1
    members = {one['row_index']: one for one in ask.rows(models.Member)}
    assert members[1]['host'] == second.host
    assert members[1]['state'] == State.RESERVED
    assert members[0]['host'] == first.host


def test_a_sibling_without_memory_of_its_group(ask):
    """Another process plans, this one reads the plan."""
    first = ask.place(0)
    other = ask.another()
    answer = other.place(1)
    assert (answer.host, answer.row) == (first.rows['1'], 1)
    assert answer.why == 'as planned'
    # Now it knows the group, and takes the short way.
    last = other.place(2)
    assert (last.host, last.why) == (first.rows['2'], 'as planned')
    rows = ask.rows(models.Placement)
    assert {one['instance_uuid'] for one in rows} == {
        'vm-0', 'vm-1', 'vm-2'}
    assert {one['group_id'] for one in rows} == {first.group}


def test_a_vm_that_runs_is_advised(ask):
    first = ask.place(0, hosts=OF)
    set_running(ask)
    decision = ask.decisions.find(first.group)
    again = ask.place(0, hosts=OF, matrix=None)
    assert again.status == 'planned' and again.row == 0
    # Advice names no hosts for others, and is no decision about the group.
    assert again.rows is msgspec.UNSET
    assert ask.decisions.find(first.group) is decision
    (member,) = [one for one in ask.rows(models.Member)
                 if one['row_index'] == 0]
    assert (member['host'], member['planned_host']) == (
        first.host, again.host)


def test_the_planned_host_comes_first_and_reasons_follow(ask):
    answer = ask.place(0, num_instances=2, hosts=OF)
    best, *others = answer.hosts
    assert best.host == answer.host and best.feasible
    assert best.why in answer.why
    assert '2 servers for a matrix of 3 rows' in answer.why
    times = [one.cct_s for one in others if one.feasible]
    assert times == sorted(times)


def racks(ask, *pairs):
    ask.state.payload_tree = lambda now_s: cluster.Tree(
        tuple(cluster.Subtree(rack, 1e9, 1e9, None, 'rack')
              for rack in sorted({rack for _host, rack in pairs})),
        dict(pairs))


FULL = {'h0': asking.FREE, 'h1': asking.FREE}
WITHIN = {'virtco:within': 'rack:required'}


def test_a_wish_that_is_met_bounds_where_others_go(ask):
    racks(ask, *((host, 'r0' if host < 'h2' else 'r1') for host in OF))
    first = ask.place(0, hints=WITHIN, hosts=OF)
    assert first.status == 'planned'
    allowed = {'h0', 'h1'} if first.host < 'h2' else {'h2', 'h3'}
    assert set(first.rows.values()) <= allowed
    assert set(first.allowed) == allowed
    second = ask.place(1, matrix=None, hints=WITHIN, hosts=OF)
    assert set(second.allowed) == allowed == set(hosts_of(second))
    # A wish that is only preferred, or none, bounds nothing.
    assert ask.place(2, matrix=None, hints={
        'virtco:within': 'rack'}, hosts=OF).allowed is None


def test_a_wish_that_is_refused_is_written_down(ask):
    racks(ask, ('h0', 'r0'), ('h1', 'r1'))
    refused = ask.place(0, hints=WITHIN, hosts=FULL)
    assert (refused.status, refused.host, refused.group) == (
        'neutral', None, None)
    assert refused.refused == {'level': 'rack', 'fitting': 2, 'wanted': 3,
                               'limiting': 'vcpus'}
    assert kinds(ask) == ['wish_refused']
    assert [one['group_id'] for one in ask.rows(models.Event)] == [None]
    assert len(ask.rows(models.Placement)) == 1
    assert ask.rows(models.Group) == []
    # The very same question may have another answer by now.
    racks(ask, ('h0', 'r0'), ('h1', 'r0'))
    assert ask.place(0, hints=WITHIN, hosts=FULL).status == 'planned'


def test_without_room_there_is_no_plan_and_nothing_is_written(ask):
    answer = ask.place(0, hosts={'h0': (0, 9, 9)})
    assert answer.status == 'neutral' and answer.refused is None
    assert answer.why.startswith('no valid placement: ')
    assert ask.rows(models.Placement) == ask.rows(models.Group) == []


@pytest.mark.parametrize('values', [
    {}, {'hints': {'virtco:index': '99'}},
    {'hints': WITHIN, 'hosts': {'h0': (1, 512, 3)}}])
def test_nothing_is_committed_after_the_deadline(ask, values):
    """Neither a plan nor what is ignored or refused."""
    racks(ask, ('h0', 'r0'))
    late = deadlines.Deadline(60)
    late.give_up()
    with pytest.raises(exception.TooLate):
        ask.place(0, deadline=late, **values)
    assert ask.rows(models.Placement) == ask.rows(models.Group) == []
    assert kinds(ask) == []


class Claimed(deadlines.Deadline):
    """Knows what was written when it was claimed.

    :param database: whose statements it sees.
    """

    def __init__(self, database):
        super().__init__(60)
        self.written, self.claimed = [], None
        sa.event.listen(database.engine, 'before_cursor_execute', self._see)

    def _see(self, _connection, _cursor, statement, *_more):
        if not statement.startswith('SELECT'):
            self.written.append(statement.split()[0])

    def claim(self):
        super().claim()
        self.claimed = list(self.written)


@pytest.mark.parametrize('values', [
    {}, {'hints': {'virtco:index': '99'}},
    {'hints': WITHIN, 'hosts': {'h0': (1, 512, 3)}}])
def test_nothing_but_the_commit_is_left_once_a_deadline_is_claimed(
        ask, values):
    """Writing takes time, too, and so counts before."""
    racks(ask, ('h0', 'r0'))
    deadline = Claimed(ask.database)
    ask.place(0, deadline=deadline, **values)
    assert deadline.claimed == deadline.written
    assert 'INSERT' in deadline.written


def test_one_that_joins_writes_before_it_claims(ask):
    ask.place(0)
    deadline = Claimed(ask.database)
    ask.another().place(1, num_instances=2, matrix=[[0, 1], [0, 0]],
                        deadline=deadline)
    assert deadline.claimed == deadline.written != []
    assert kinds(ask) == ['matrix_differs']


@pytest.mark.parametrize('wanted_s', ['1000000', '1'])
def test_what_became_of_a_deadline_is_written_down(ask, wanted_s):
    answer = ask.place(0, hints={'virtco:deadline': wanted_s})
    (event,) = ask.rows(models.Event)
    assert event['kind'] == 'deadline' and event['detail'] in answer.why
    assert answer.deadline.why in event['detail']


def test_one_that_joins_without_memory_joins_in_time(ask):
    ask.place(0)
    late = deadlines.Deadline(60)
    late.give_up()
    with pytest.raises(exception.TooLate):
        ask.another().place(1, deadline=late)
    assert len(ask.rows(models.Placement)) == 1


@pytest.mark.parametrize(('n_conflicts', 'is_planned'), [
    (2, True), (math.inf, False)])
def test_a_conflict_is_tried_again(monkeypatch, n_conflicts, is_planned):
    """Until the deadline, at which the last conflict is raised."""
    ask = asking.Asking(placement={'deadline_s': 60 if is_planned else 0.05})
    calls = []
    view = membership.Reader.view

    def failing(self, *args):
        calls.append(args)
        if len(calls) <= n_conflicts:
            raise exception.Conflict(what='generation', id=1)
        return view(self, *args)

    monkeypatch.setattr(membership.Reader, 'view', failing)
    if is_planned:
        assert ask.place(0).status == 'planned'
    else:
        with pytest.raises(exception.Conflict):
            ask.place(0)
    # Each conflict is counted, the last one as well.
    assert ask.counts.plan_conflicts._value.get() == len(calls) - is_planned


def test_drained_hosts_take_no_new_group(ask):
    ask.state.drained = frozenset({'h0', 'h1'})
    answer = ask.place(0, hosts={host: (9, 9999, 99) for host in OF})
    assert set(answer.rows.values()) <= {'h2', 'h3'}
    full = ask.place(5, hosts=('h0', 'h1'), hints={'virtco:coflow': 'b'})
    assert full.status == 'neutral'
    assert 'every candidate host is drained' in full.why


def test_a_group_keeps_to_a_host_that_is_drained_since(ask):
    first = ask.place(0, hosts=OF)
    ask.state.drained = frozenset({first.rows['1']})
    assert ask.place(1, hosts=OF).host == first.rows['1']


def test_who_got_no_plan_keeps_nobody_waiting():
    """The same new group asks again, and does not wait for itself."""
    ask = asking.Asking(placement={'window_ms': 1, 'budget_s': 0.1})
    full = {'h0': (0, 9, 9)}
    for _ in range(2):
        answer = ask.place(0, hosts=full, deadline=deadlines.Deadline(2))
        assert answer.status == 'neutral'
    assert ask.place(0).status == 'planned'


class Noted(deadlines.Deadline):
    """Knows the phases in turn."""

    def __init__(self):
        super().__init__(60)
        self.phases = []

    def enter(self, phase):
        super().enter(phase)
        self.phases.append(phase)


def test_what_takes_time_is_named(ask):
    def phases(*args, one=ask, **values):
        noted = Noted()
        one.place(*args, deadline=noted, **values)
        return noted.phases

    assert phases(0) == ['read', 'solve', 'rank', 'commit']
    assert phases(1) == ['read', 'commit']
    # A process that knows nothing of the group reads its plan.
    assert phases(2, one=ask.another()) == ['read', 'commit']
    # A member of a group that is known: whether it is one is asked first.
    assert phases(0) == ['read', 'commit', 'read']
    assert phases(3, hints={'virtco:index': '9'}) == [
        'read', 'commit', 'read', 'commit']
    racks(ask, ('h0', 'r0'))
    assert phases(4, hints=WITHIN | {'virtco:coflow': 'b'}) == [
        'read', 'solve', 'commit']


def test_a_sibling_of_another_flavor_takes_no_more_than_there_is():
    """Of 8 vCPUs 1 + 1 are the group's, 6 another's: 4 do not fit."""
    one = asking.Asking()
    host = {'h0': (8, 65536, 900)}
    lone = {'matrix': [[0]], 'num_instances': 1}
    pair = {'matrix': [[0, 1e9], [0, 0]], 'num_instances': 2}
    assert one.place(0, hosts=host, flavor=(1, 1, 1), **pair).host == 'h0'
    assert one.place(9, hosts=host, flavor=(6, 1, 1), hints={
        'virtco:coflow': 'b'}, **lone).host == 'h0'
    found = one.place(1, hosts=host, flavor=(4, 1, 1), **pair)
    assert found.status == 'neutral' and 'no valid placement' in found.why
    # Where another host has room, it goes there.
    found = one.place(1, hosts=host | {'h1': (4, 9, 9)}, flavor=(4, 1, 1),
                      **pair)
    assert found.host == 'h1'
    assert sorted((row['host'], row['vcpus'])
                  for row in one.rows(models.Member)) == [
        ('h0', 1), ('h0', 6), ('h1', 4)]


def test_a_retry_takes_room_on_both_hosts():
    """Nova asks once more, without the host on which the build failed, or
    only for alternates.
    """
    one = asking.Asking()
    lone = {'matrix': [[0]], 'num_instances': 1}
    first = one.place(0, hosts=('h0', 'h1'), **lone).host
    assert one.place(0, hosts=('h0', 'h1', 'h2'), **lone).host == first
    (other,) = {'h0', 'h1'} - {first}
    assert one.place(0, hosts=(other,), **lone).host == other
    (row,) = one.rows(models.Member)
    assert (row['host'], row['state']) == (first, 'reserved')
    (claim,) = one.rows(models.Claim)
    assert (claim['instance_uuid'], claim['host']) == ('vm-0', other)
