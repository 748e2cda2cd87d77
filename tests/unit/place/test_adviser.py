# SPDX-License-Identifier: Apache-2.0

"""Moves that are written down, and those that Nova is told to make."""

import json
import pathlib

import pytest

from tests.unit import plain
from tests.unit import stored
from tests.unit.db import conftest as db_fixtures
from tests.unit.follow import test_rebuild
from tests.unit.place import asking
from virtco import exception
from virtco.cmd import controller
from virtco.db import groups as db_groups
from virtco.follow import rebuild
from virtco.objects import group_rules
from virtco.objects import settings
from virtco.place import adviser
from virtco.state import live_state

database, migrated = db_fixtures.database, db_fixtures.migrated

SAMPLE = json.loads((pathlib.Path(__file__).parents[2] / 'fixtures'
                     / 'advice.json').read_text())['moves'][0]


class Mover:
    def __init__(self):
        self.moved = []
        self.error = None

    def live_migrate(self, uuid, host):
        if self.error:
            raise self.error
        self.moved.append((uuid, host))


@pytest.fixture
def make(database):
    """Two groups of two VMs, each on hosts of their own."""
    def call(max_migrations=0, drained=()):
        conf = controller.make_conf([])
        conf.set_override('max_migrations', max_migrations, 'reevaluation')
        rebuild.rebuild(conf, database, [rebuild.read(test_rebuild.body(
            number, f'g{number // 2}', '[[0, "1TB"], [0, 0]]',
            **{'OS-EXT-SRV-ATTR:launch_index': number % 2}))
            for number in range(4)])
        state = live_state.LiveState()
        state.drained = frozenset(drained)
        return plain.Plain(adviser.Adviser(
            conf, stored.state(database, state),
            settings.Settings(conf, database),
            lambda: {f'h{i}': (2.0, 4096.0, 90.0) for i in range(6)
                     if f'h{i}' not in drained}))
    return call


def turn(adviser, mover=None):
    adviser.turn(mover)
    return adviser.known()


def test_a_group_that_ends_while_all_are_read(make, monkeypatch):
    adviser, living = make(), db_groups.living_by_id

    def one_less(session):
        found = living(session)
        found.popitem()
        return found

    monkeypatch.setattr(db_groups, 'living_by_id', one_less)
    assert len(adviser.look()) == 1


def test_advice_moves_nothing(make):
    adviser = make()
    assert adviser.known() == []
    mover = Mover()
    moves = turn(adviser, mover)
    assert len(moves) == 2
    assert mover.moved == []
    for move in moves:
        assert move['state'] == 'proposed'
        assert move['saved_s'] > move['cost_s'] > 0
        assert move['then_cct_s'] == 0 < move['cct_s']
        # What the tests of the plug-in for Watcher answer with.
        assert {name: type(value) for name, value in move.items()} == {
            name: type(value) for name, value in SAMPLE.items()}
    # Looking alone writes nothing down.
    assert [m['instance_uuid'] for m in adviser.look()] == [
        m['instance_uuid'] for m in moves]


def test_a_host_may_be_forgotten_meanwhile(make):
    found = make()
    threads = asking.forgetting(found._live, 'h1')
    assert len(found.look()) == 2 and threads


def test_a_group_against_its_rules_keeps_no_other_from_a_move(make, database):
    found = make()
    with database.writer() as session:
        kept = next(iter(db_groups.living_by_id(session).values()))
        kept.rules = group_rules.Rules(server_groups=(group_rules.ServerGroup(
            'affinity', (0, 1), ('elsewhere',)),)).record()
        ruled = kept.id
    (move,) = found.look()
    assert move['group'] != ruled


def test_nova_moves_so_many_at_a_time(make, database):
    adviser, mover = make(1), Mover()
    moves = turn(adviser, mover)
    assert [m['state'] for m in moves].count('migrating') == 1
    ((uuid, host),) = mover.moved
    # While it is under way nothing else begins.
    turn(adviser, mover)
    assert len(mover.moved) == 1
    with database.writer() as session:
        db_groups.member_of(session, uuid).host = host
    moves = turn(adviser, mover)
    assert len(mover.moved) == 2
    assert uuid not in [m['instance_uuid'] for m in moves]


def test_what_nova_refuses(make):
    adviser, mover = make(1), Mover()
    mover.error = exception.NovaUnavailable(why='HTTP 400')
    assert sorted(m['state'] for m in turn(adviser, mover)) == [
        'proposed', 'refused']


def test_a_drained_host_is_left_first(make):
    moves = turn(make(drained={'h0'}))
    assert (moves[0]['reason'], moves[0]['host']) == ('drain', 'h0')
    assert 'h0' not in [m['to_host'] for m in moves]


def test_one_that_does_not_lead_any_more_moves_nothing(make, database):
    def fence(session):
        raise exception.Deposed(epoch=1)

    database.fence = fence
    adviser, mover = make(1), Mover()
    with pytest.raises(exception.Deposed):
        adviser.turn(mover)
    assert mover.moved == []
    assert adviser.known() == []


def test_a_migration_is_written_down_before_it_begins(make):
    """The next leader counts it although this one ends here."""
    class Ending(Mover):
        def live_migrate(self, uuid, host):
            super().live_migrate(uuid, host)
            raise KeyboardInterrupt

    adviser, mover = make(1), Ending()
    with pytest.raises(KeyboardInterrupt):
        turn(adviser, mover)
    ((uuid, _host),) = mover.moved
    after = Mover()
    states = {m['instance_uuid']: m['state'] for m in turn(adviser, after)}
    assert states.pop(uuid) == 'migrating'
    assert list(states.values()) == ['proposed']
    assert after.moved == []
