# SPDX-License-Identifier: Apache-2.0

"""Policies of one who leads elsewhere, read from a real database."""

import json

import pytest
import sqlalchemy as sa

from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.decide import stored
from virtco.wire import edge_policy


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture
def database(tmp_path):
    found = db_session.Database(f'sqlite:///{tmp_path}/db')
    migration.upgrade(found)
    yield found
    found.dispose()


def write(database, **generations):
    with database.writer() as session:
        session.execute(sa.delete(models.Policy))
        for host, generation in generations.items():
            policy = edge_policy.EdgePolicy(host, generation, 60.0, 1e9, 2e9,
                                            1e7)
            session.add(models.Policy(
                host=host, epoch=1, generation=generation,
                document=json.dumps(policy.to_dict())))


def known(found):
    return {host: policy.generation for host, policy in found.all().items()}


def test_what_was_read_stays_for_a_moment(database):
    clock = Clock()
    found = stored.Stored(database, clock)
    write(database, a=1, b=5)
    assert known(found) == {'a': 1, 'b': 5}
    before = found.get('b')
    write(database, a=2, b=5, c=1)
    clock.now += stored.FRESH_S - 0.01
    assert known(found) == {'a': 1, 'b': 5}
    clock.now += 0.01
    assert known(found) == {'a': 2, 'b': 5, 'c': 1}
    # What did not change is not read again.
    assert found.get('b') is before
    write(database, b=5)
    clock.now += stored.FRESH_S
    assert known(found) == {'b': 5} and found.get('a') is None


def test_what_was_read_stays_while_the_database_is_away(database):
    clock = Clock()
    found = stored.Stored(database, clock)
    write(database, a=1)
    assert known(found) == {'a': 1}
    with database.writer() as session:
        session.execute(sa.text('DROP TABLE policies'))
    clock.now += 1
    assert known(found) == {'a': 1}
