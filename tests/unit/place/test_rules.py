# SPDX-License-Identifier: Apache-2.0

"""Rules of a group: stored by its launches, kept by every advice."""

import pytest

from tests.unit.place import asking
from tests.unit.place import test_adviser
from virtco.db import models
from virtco.model import cluster
from virtco.objects import group_rules

database, migrated = test_adviser.database, test_adviser.migrated
make = test_adviser.make
ANTI = {'policy': 'anti-affinity', 'members': [], 'hosts': ['h9']}


def stored(ask):
    (group,) = ask.rows(models.Group)
    return group_rules.of_record(group['rules'])


def test_a_launch_stores_wishes_and_its_server_group():
    ask = asking.Asking()
    ask.place(0, hints={'virtco:spread': 'rack'}, server_group=ANTI)
    assert stored(ask) == group_rules.Rules(
        '', 'rack:preferred', (group_rules.ServerGroup(
            'anti-affinity', (0, 1, 2), ('h9',)),))
    plain = asking.Asking()
    plain.place(0)
    assert plain.rows(models.Group)[0]['rules'] == ''


def test_instances_that_come_one_by_one_join_their_server_group():
    ask = asking.Asking()
    ask.place(0, num_instances=1, server_group=ANTI | {'max_per_host': 2})
    assert stored(ask).server_groups[0].rows == (0,)
    host = next(row['host'] for row in ask.rows(models.Member)
                if row['instance_uuid'] == 'vm-0')
    # The next ones have their hosts from the plan already.
    ask.place(1, num_instances=1, matrix=None, server_group=ANTI | {
        'members': ['vm-0', 'other'], 'hosts': [host, 'h9'],
        'max_per_host': 2})
    assert stored(ask) == group_rules.Rules(server_groups=(
        group_rules.ServerGroup('anti-affinity', (0, 1), ('h9',), 2),))
    ask.place(2, num_instances=1, matrix=None)
    assert stored(ask).server_groups[0].rows == (0, 1)


def test_one_that_joins_keeps_the_wishes_of_its_group():
    ask = asking.Asking()
    ask.place(0, num_instances=1, hints={'virtco:within': 'rack'})
    before = stored(ask)
    answer = ask.place(1, num_instances=1, matrix=None, flavor=(2, 512, 3))
    assert 'virtco:within rack:preferred' in answer.why
    assert stored(ask) == before == group_rules.Rules('rack:preferred')


def change(database, rules):
    """Give the first of the two groups rules."""
    with database.writer() as session:
        group = session.query(models.Group).filter_by(name='g0').one()
        group.rules = rules.record()
        return group.id


def moves(adviser, group_id):
    return [move for move in test_adviser.turn(adviser)
            if move['group'] == group_id]


@pytest.mark.parametrize('policy, n_moves', [
    ('affinity', 0), ('anti-affinity', 0), ('soft-anti-affinity', 1)])
def test_advice_keeps_server_groups(make, database, policy, n_moves):
    """Without it one of the two VMs would move to the other."""
    adviser = make()
    group_id = change(database, group_rules.Rules(server_groups=(
        group_rules.ServerGroup(policy, (0, 1)),)))
    found = moves(adviser, group_id)
    assert len(found) == n_moves
    assert len(adviser.known()) == n_moves + 1


def with_racks(adviser, monkeypatch):
    """Below two racks, each with a VM of the first group."""
    tree = cluster.Tree(tuple(
        cluster.Subtree(name, 1e12, 1e12) for name in ('r0', 'r1')), {
            f'h{i}': f'r{i % 2}' for i in range(6)})
    monkeypatch.setattr(adviser._live, 'payload_tree', lambda now_s: tree)
    return adviser


@pytest.mark.parametrize('wish', ['rack:required', 'rack:preferred'])
def test_advice_keeps_wishes(make, database, monkeypatch, wish):
    adviser = with_racks(make(), monkeypatch)
    group_id = change(database, group_rules.Rules(spread=wish))
    assert moves(adviser, group_id) == []
    change(database, group_rules.Rules(spread=wish + ':skew=1'))
    assert len(moves(adviser, group_id)) == 1


@pytest.mark.parametrize('wish, targets', [
    ('rack:required', {'h2', 'h4'}), ('rack:preferred', {'h2', 'h4'})])
def test_a_drained_host_is_left_for_one_that_the_wish_allows(
        make, database, monkeypatch, wish, targets):
    adviser = with_racks(make(drained={'h0'}), monkeypatch)
    group_id = change(database, group_rules.Rules(spread=wish))
    (move,) = moves(adviser, group_id)
    assert (move['reason'], move['host']) == ('drain', 'h0')
    assert move['to_host'] in targets


@pytest.mark.parametrize('wish, n_moves', [
    ('rack:required', 0), ('rack:preferred', 1)])
def test_only_a_required_wish_keeps_a_vm_on_a_drained_host(
        make, database, monkeypatch, wish, n_moves):
    """All hosts of h0's rack are drained, and h1 is in the other."""
    adviser = with_racks(make(drained={'h0', 'h2', 'h4'}), monkeypatch)
    group_id = change(database, group_rules.Rules(within=wish))
    with database.writer() as session:
        for member in session.query(models.Member).filter_by(
                group_id=group_id, row_index=1):
            member.host = 'h2'
    assert len(moves(adviser, group_id)) == n_moves
