# SPDX-License-Identifier: Apache-2.0

"""A distributor in a process of its own: its health, and what it asks."""

import types

import pytest

from tests.unit import stored
from virtco import exception
from virtco.db import models
from virtco.distribute import apart


class Part:
    """Of a distributor; notes what it is told."""

    epoch, n_hosts, is_connected = 4, 7, True

    def __init__(self, is_alive=True):
        self._is_alive = is_alive
        self.told = []

    def is_alive(self):
        return self._is_alive

    def __getattr__(self, name):
        if name.startswith('__'):
            raise AttributeError(name)
        return lambda *args: self.told.append((name, *args))


@pytest.fixture
def one():
    found = object.__new__(apart.Apart)
    found._feed, found._server = Part(), Part()
    found._database = stored.database()
    stored.add(found._database, models.Leader(
        id=1, epoch=4, beat=0, name='', address=''))
    return found


def test_its_health(one):
    assert one.health() == (True, {
        'status': 'ok', 'parts': {
            'distributor': True, 'feed': True, 'database': True},
        'hosts': 7, 'leader': {'epoch': 4, 'here': False, 'reached': True}})
    for part in ('_feed', '_server'):
        setattr(one, part, Part(False))
        is_well, found = one.health()
        assert not is_well and found['status'] == 'failing'
        setattr(one, part, Part())


def test_a_database_that_is_away(one):
    def away():
        raise exception.DatabaseUnavailable(why='test')

    one._database = types.SimpleNamespace(reader=away)
    is_well, found = one.health()
    assert not is_well
    assert found['parts'] == {'distributor': True, 'feed': True,
                              'database': False}


def test_all_comes_from_whoever_leads(one):
    doors = one._doors()
    assert (doors.epoch(), doors.n_hosts(), doors.trains(['h1'])) == (
        4, 7, {})
    doors.came('h1', 3)
    doors.left('h1')
    assert one._feed.told == [('follow', 'h1', 3), ('leave', 'h1')]


def test_it_ends_with_all_its_parts(one):
    one._database = Part()
    one.stop()
    assert (one._server.told, one._feed.told, one._database.told) == (
        [('stop',)], [('stop',)], [('dispose',)])


def test_where_nobody_could_connect_it_does_not_start(one):
    one._conf = stored.conf(distributor={'enabled': False})
    one.metrics = None
    with pytest.raises(exception.ConfigInvalid, match='nobody could connect'):
        one.start()
