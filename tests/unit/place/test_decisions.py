# SPDX-License-Identifier: Apache-2.0

"""What is kept of a plan for those who ask later."""

import pytest

from tests.unit.solver import test_counterfactuals as problems
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.model import cluster
from virtco.model import snapshot
from virtco.place import decisions
from virtco.solver import planner


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db.sqlite', 0.3)
    migration.upgrade(found)
    yield found
    found.dispose()


def decision(name='g', **changes):
    asked = problems.problem(**changes)
    return decisions.Decision(name, asked, (0, 1), planner.plan(asked),
                              {'solve': 0.1})


def test_a_problem_comes_back_as_it_was():
    kept = decision(
        tree=cluster.Tree((cluster.Subtree('r0', float('inf'), 1e9),),
                          {'h0': 'r0'}),
        active=(snapshot.ActiveCoflow('x', (('h0', 1.0),), (('h1', 1.0),),
                                      (('h0', 'h1', 1.0),)),),
        server_groups=(snapshot.ServerGroup(
            snapshot.GroupPolicy.ANTI_AFFINITY, (0, 1)),),
        pair_rate_bps={('h0', 'h1'): 1e9, ('h0', 'h2'): 2e9},
        excluded_hosts=frozenset({'h9'}))
    assert decisions.unpack(decisions.pack(kept)) == kept
    assert decisions.unpack(b'of another version') is None


def test_it_is_found_before_and_after_it_is_written(database):
    kept = decisions.Decisions(database)
    first, second = decision(), decision(rooms=(0, 2, 2))
    kept.add(first)
    assert kept.find('g') == first
    kept.write()
    assert decisions.Decisions(database).find('g') == first
    kept.add(second)
    kept.write()
    assert decisions.Decisions(database).find('g') == second
    assert kept.find('other') is None


def test_what_is_kept_has_bounds(database, monkeypatch):
    kept = decisions.Decisions(database)
    for i in range(decisions.MOST_WAITING + 3):
        kept.add(decision(f'g{i}'))
    assert kept.find('g2') is None
    assert kept.find('g3') is not None
    monkeypatch.setattr(decisions, 'MOST_ENTRIES', 3)
    kept.add(decision('large'))
    assert kept.find('large') is None


@pytest.mark.parametrize('more', [0, 1])
def test_a_problem_is_kept_up_to_so_many_entries(database, monkeypatch, more):
    """Three hosts, one flow, two pairs, and loads of three sorts."""
    pairs = {('h0', 'h1'): 1e9, ('h0', 'h2'): 2e9}
    load = snapshot.ActiveCoflow(
        'x', (('h0', 1.0),), (('h1', 1.0), ('h2', 1.0)),
        tuple((src, dst, 1.0) for src in ('h0', 'h1')
              for dst in ('h2', 'h3')))
    monkeypatch.setattr(decisions, 'MOST_ENTRIES', 3 + 1 + 2 + 7 - more)
    kept = decisions.Decisions(database)
    kept.add(decision(pair_rate_bps=pairs, active=(load,)))
    assert (kept.find('g') is None) == bool(more)


def test_a_turn_packs_for_a_while_and_the_next_goes_on(database, monkeypatch):
    kept = decisions.Decisions(database)
    for name in 'abc':
        kept.add(decision(name))
    times_s = [7.0, 7.0, 7.049, 7.0 + decisions.TURN_S]
    monkeypatch.setattr(decisions.time, 'thread_time',
                        lambda: times_s.pop(0) if times_s else 7.0)

    def written():
        kept.write()
        return [name for name in 'abc'
                if decisions.Decisions(database).find(name)]

    assert written() == ['a', 'b']
    assert kept.find('c') == decision('c')
    assert written() == ['a', 'b', 'c']
    assert decisions.TURN_S == 0.05


def test_a_database_that_is_away_loses_nothing(database):
    kept = decisions.Decisions(database)
    kept.add(decision())
    with database.engine.begin() as connection:
        models.Base.metadata.tables['decisions'].drop(connection)
    kept.write()
    assert kept.find('g') is not None
