# SPDX-License-Identifier: Apache-2.0

"""Rows that Nova has not asked about are planned again with a new group."""

import collections
import math
import random

import hypothesis
from hypothesis import strategies as st
import pytest
import sqlalchemy as sa

from tests.unit.place import asking
from virtco.db import bookings
from virtco.db import models
from virtco.model import cluster
from virtco.model import states
from virtco.place import deadline as deadlines
from virtco.place import replanning
from virtco.solver import together

#: Each host holds three VMs.
SLOTS, REST = 3, (4096, 90)
HOSTS = dict.fromkeys(('h0', 'h1', 'h2'), (SLOTS, *REST))
SMALL = [[0, 1e6, 1e6], [0, 0, 0], [0, 0, 0]]
LARGE = [[0, 100e9, 100e9], [0, 0, 100e9], [0, 0, 0]]


@pytest.fixture
def ask():
    return asking.Asking(placement={'budget_s': 5.0})


def launch(ask, name, number, matrix, hosts=HOSTS, n_vms=1, hints=None,
           **values):
    return ask.place(number, matrix, hosts, {'virtco:coflow': name, **(
        hints or {})}, num_instances=n_vms, launch_index=0,
        reservation_id=f'r{number}', **values)


def hosts_of(ask):
    """Map (group, row) to its host."""
    names = {one['id']: one['name'] for one in ask.rows(models.Group)}
    return {(names[one['group_id']], one['row_index']): one['host']
            for one in ask.rows(models.Member)}


def ccts_s(ask):
    return {one['name']: one['cct_s'] for one in ask.rows(models.Group)}


def move(ask, hosts):
    """Put the rows of the only group on these hosts."""
    with ask.database.writer() as session:
        for row, host in enumerate(hosts):
            session.execute(sa.update(models.Member).where(
                models.Member.row_index == row).values(
                    host=host, planned_host=host))


def two(ask, small=(), **values):
    """Launch a large group between the rows of a small one."""
    launch(ask, 'small', 0, SMALL, **dict(small))
    move(ask, ('h0', 'h1', 'h2'))
    launch(ask, 'large', 1, LARGE, {
        host: HOSTS[host] for host in ('h1', 'h2')}, **values)
    found = hosts_of(ask)
    assert len({found['large', row] for row in range(3)}) == 2
    return found


def turn(ask):
    """Return the number of groups that changed."""
    return len(ask.placer.replanning.turn())


def test_unasked_rows_make_way(ask):
    before, slow_s = two(ask), ccts_s(ask)
    assert turn(ask) == 2
    after = hosts_of(ask)
    assert {after['large', row] for row in range(3)} == {before['large', 0]}
    assert after['small', 0] == before['small', 0]
    # What was told of the plan is that of the new one.
    assert ccts_s(ask)['large'] < slow_s['large']
    for group in ask.rows(models.Group):
        decision = ask.decisions.find(group['id'])
        assert list(decision.plan.hosts) == [
            after[group['name'], row] for row in decision.rows]
    for row in (1, 2):
        answer = launch(ask, 'large', 10 + row, None,
                        hints={'virtco:index': str(row)})
        assert (answer.host, answer.row) == (after['large', row], row)
    for one in ask.rows(models.Member):
        assert one['planned_host'] == one['host']
        assert one['expires_at'] is not None
    # No launch came since.
    assert turn(ask) == 0


def test_a_host_may_be_forgotten_meanwhile(ask):
    two(ask)
    threads = asking.forgetting(ask.state, 'h1')
    assert turn(ask) == 2 and threads


def test_a_row_asked_meanwhile_keeps_its_host_and_all_others_theirs(
        ask, monkeypatch):
    before = two(ask)
    again = together.again

    def asked_meanwhile(*args, **options):
        found = again(*args, **options)
        moved = [(name, row) for (name, row), host in before.items()
                 if name == 'large' and host != before['large', 0]]
        launch(ask, 'large', 5, None, hints={
            'virtco:index': str(moved[0][1])})
        return found

    monkeypatch.setattr(together, 'again', asked_meanwhile)
    assert turn(ask) == 0
    assert hosts_of(ask) == before


def test_room_taken_meanwhile_is_not_booked_again(ask, monkeypatch):
    before = two(ask)
    again = together.again

    def taken_meanwhile(*args, **options):
        found = again(*args, **options)
        with ask.database.writer() as session:
            session.add_all([models.Claim(
                instance_uuid=host, host=host, is_member=False, vcpus=1,
                memory_mb=0, disk_gb=0, expires_at=math.inf)
                for host in HOSTS])
        return found

    monkeypatch.setattr(together, 'again', taken_meanwhile)
    assert turn(ask) == 0
    assert hosts_of(ask) == before


def test_rows_that_an_answer_told_stay(ask):
    """Nova's filter may use them without a question."""
    two(ask, small={'n_vms': 3}, n_vms=3)
    assert turn(ask) == 0


def test_a_group_with_a_promise_stays(ask):
    before = two(ask, hints={'virtco:deadline': '1000000'})
    assert turn(ask) == 0
    assert hosts_of(ask) == before


def test_a_group_with_a_promise_stays_where_another_host_was_taken(ask):
    before = two(ask, hints={'virtco:deadline': '1000000'})
    launch(ask, 'large', 7, None, {
        host: free for host, free in HOSTS.items()
        if host != before['large', 1]}, hints={'virtco:index': '1'})
    promised = {one['group_id'] for one in ask.rows(models.Coflow)
                if one['is_promised']}
    kept = ask.placer.replanning._groups.items()
    assert len(promised) == 1
    assert promised.isdisjoint(group_id for group_id, _group in kept)


def test_nothing_moves_while_a_placement_is_under_way(ask):
    before = two(ask)
    deadline = deadlines.Deadline(1.0)
    ask.pace.admit(deadline)
    assert turn(ask) == 0
    assert hosts_of(ask) == before
    ask.pace.leave(deadline)
    assert turn(ask) == 2


def test_an_objective_without_others_plans_nothing_again(ask):
    two(ask)
    ask.settings.change({'objective': 'isolated'})
    assert turn(ask) == 0


@pytest.mark.parametrize('later_s, n_changed', [
    (replanning.MOST_SHOWN_S, 2), (replanning.MOST_SHOWN_S + 0.1, 0),
    (-1.0, 0)])
def test_room_of_an_old_request_is_not_used(ask, later_s, n_changed):
    two(ask)
    ask.now_s += later_s
    assert turn(ask) == n_changed


@pytest.mark.parametrize('later_s, n_changed', [
    (replanning.MOST_AGE_S - 1, 2), (replanning.MOST_AGE_S, 1)])
def test_rows_of_an_old_group_stay(ask, later_s, n_changed):
    launch(ask, 'small', 0, SMALL)
    move(ask, ('h0', 'h1', 'h2'))
    ask.now_s += later_s
    launch(ask, 'large', 1, LARGE, {
        host: HOSTS[host] for host in ('h1', 'h2')})
    before = hosts_of(ask)
    turn(ask)
    small = {hosts_of(ask)['small', row] == before['small', row]
             for row in range(3)}
    assert small == ({True} if n_changed == 1 else {True, False})


def test_no_row_moves_to_a_drained_host(ask):
    before = two(ask)
    ask.state.drained = frozenset(HOSTS)
    assert turn(ask) == 0
    assert hosts_of(ask) == before


def test_a_group_that_lost_a_host_stays(ask):
    two(ask)
    move(ask, (None, None, None))
    assert turn(ask) == 0


def test_a_group_that_was_deleted_is_not_planned_again(ask):
    """Nor one that lost a row."""
    two(ask)
    with ask.database.writer() as session:
        session.execute(sa.delete(models.Member).where(
            models.Member.row_index == 2))
    assert turn(ask) == 0


RACKS = cluster.Tree(tuple(
    cluster.Subtree(name, 1e12, 1e12) for name in ('r0', 'r1')), {
        f'h{i}': f'r{i % 2}' for i in range(4)})
PLACE = ('host', 'planned_host', *bookings.ROOM)
GROUPS = st.lists(st.fixed_dictionaries({
    'n_vms': st.integers(2, 5), 'seed': st.integers(0, 99),
    'vcpus': st.integers(1, 2), 'told': st.sampled_from([False] * 3 + [True]),
    'n_asked': st.integers(1, 2), 'wish': st.sampled_from(
        [None, None, 'virtco:within', 'virtco:spread'])}),
    min_size=2, max_size=4)


def matrix_of(n_vms, seed):
    return [[(seed * 7919 + i * 31 + j * 17) % 5 * 1e9 if i != j else 0
             for j in range(n_vms)] for i in range(n_vms)]


def shuffle(ask, names, seed):
    """Exchange hosts of rows without a VM."""
    with ask.database.writer() as session:
        rows = session.scalars(sa.select(models.Member).join(
            models.Group, models.Group.id == models.Member.group_id).where(
                models.Group.name.in_(names),
                models.Member.state == states.MemberState.PLANNED)).all()
        for vcpus in (1, 2):
            alike = [row for row in rows if row.vcpus == vcpus]
            # The room that a booking remembers is that of its host.
            places = [[getattr(row, name) for name in PLACE]
                      for row in alike]
            random.Random(seed).shuffle(places)
            for row, place in zip(alike, places):
                for name, value in zip(PLACE, place):
                    setattr(row, name, value)


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(groups=GROUPS, slots=st.lists(
    st.integers(3, 8), min_size=4, max_size=4))
def test_laws_of_moves(groups, slots):
    """No host is over-booked, no row that was told moves, and wishes hold.
    """
    ask = asking.Asking(placement={'budget_s': 0.02})
    ask.state.payload_tree = lambda now_s: RACKS
    hosts = {f'h{i}': (n, 65536, 900) for i, n in enumerate(slots)}
    told = {}
    for number, one in enumerate(groups):
        name, n_vms = f'g{number}', one['n_vms']
        for row in range(min(one['n_asked'], n_vms)):
            answer = launch(
                ask, name, 10 * number + row,
                matrix_of(n_vms, one['seed']), hosts,
                n_vms=n_vms if one['told'] else 1, flavor=(
                    one['vcpus'], 512, 3), hints={
                        one['wish']: 'rack:required'} if one['wish'] else {})
            if answer.status == 'planned':
                told[name, answer.row] = answer.host
                if one['told']:
                    told |= {(name, int(row)): host
                             for row, host in (answer.rows or {}).items()}
        shuffle(ask, [f'g{i}' for i, other in enumerate(groups)
                      if not (other['wish'] or other['told'])], one['seed'])
        turn(ask)
        now, used = hosts_of(ask), collections.Counter()
        assert told.items() <= now.items()
        for member in ask.rows(models.Member):
            used[member['host']] += member['vcpus']
        assert all(used[host] <= hosts[host][0] for host in hosts)
        for other, asked in enumerate(groups[:number + 1]):
            racks = collections.Counter(
                RACKS.leaf_of[host] for (group, _), host in now.items()
                if group == f'g{other}' and host is not None)
            if asked['wish'] == 'virtco:within':
                assert len(racks) <= 1
