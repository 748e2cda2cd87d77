# SPDX-License-Identifier: Apache-2.0

"""How the rooms are wired: who leads, what is stored, what is looked at."""

import types

import msgspec
import pytest

from tests.unit import stored
from tests.unit.api import service
from virtco import app
from virtco import exception
from virtco.db import migration
from virtco.db import models


@pytest.fixture
def fresh():
    """The App of a service, which runs no threads."""
    found = service.Service()
    yield found.rooms
    found.rooms.database.dispose()


@pytest.fixture(scope='module')
def shared():
    found = service.Service()
    yield found.rooms
    found.rooms.database.dispose()


@pytest.fixture
def rooms(shared, monkeypatch):
    """One for all tests that leave it as it was."""
    for name in ('_source', 'elector', '_epoch', '_generation', '_teller'):
        monkeypatch.setattr(shared, name, getattr(shared, name))
    return shared


def source(has_had_peers=True, port=7, **fields):
    return types.SimpleNamespace(has_had_peers=has_had_peers, port=port,
                                 **fields)


def leading(rooms, has_had_peers=True):
    """Let it lead, with a check of the lead that the test may spoil."""
    rooms._source = source(has_had_peers)
    rooms.elector = types.SimpleNamespace(
        check=lambda session: None, is_current=lambda: True)
    rooms._epoch = 1
    return rooms


@pytest.mark.parametrize(('leadership', 'api', 'address'), [
    ('h', 'a', 'h:7'), (None, 'a', 'a:7'), ('::1', 'a', '[::1]:7'),
    ('0.0.0.0', 'a', 'own:7'), (None, '::', 'own:7')])
def test_where_peers_find_it(rooms, monkeypatch, leadership, api, address):
    monkeypatch.setattr(app.socket, 'gethostname', lambda: 'own')
    monkeypatch.setattr(rooms, '_conf', stored.conf(
        leadership={'host': leadership}, api={'host': api}))
    rooms._source = source()
    assert rooms._address() == address


@pytest.mark.parametrize(('took_s', 'rests_s'), [
    (0.5, 4.5), (1.0, 9.0), (2.0, 10.0), (0.0, 0.0)])
def test_following_takes_a_tenth_of_a_core(rooms, monkeypatch, took_s,
                                           rests_s):
    slept, now_s = [], [50.0]
    monkeypatch.setattr(app, 'time', types.SimpleNamespace(
        thread_time=lambda: now_s[0], sleep=slept.append))

    def follow():
        now_s[0] += took_s

    monkeypatch.setattr(rooms.know, 'follow', follow)
    rooms._look()
    assert slept == [pytest.approx(rests_s)]


def policies(rooms):
    with rooms.database.reader() as session:
        return {row.host: row for row in session.query(models.Policy)}


def test_policies_are_stored_for_those_who_cannot_reach_it(fresh):
    leading(fresh)
    hosts = sorted(fresh.decide.generations())
    assert hosts == ['h0', 'h1', 'h2']
    fresh._store()
    found = policies(fresh)
    assert sorted(found) == hosts
    for host, row in found.items():
        generation, document = fresh._document(host)
        assert (row.epoch, row.generation, row.document) == (
            1, generation, document.decode())
        assert msgspec.json.decode(document)['host'] == host
    assert fresh._document('nobody') is None
    # What is stored is not stored again.
    with fresh.database.writer() as session:
        session.query(models.Policy).delete()
    fresh._store()
    assert policies(fresh) == {}


def test_without_peers_nothing_is_stored_or_looked_at(fresh):
    for no_peers in (None, source(False)):
        leading(fresh)._source = no_peers
        fresh._store()
        fresh._check()
        assert policies(fresh) == {} and fresh._generation == -1


def test_what_could_not_be_stored_is_stored_later(fresh):
    def deposed(session):
        raise exception.Deposed(epoch=1)

    leading(fresh)
    check, fresh.elector.check = fresh.elector.check, deposed
    with pytest.raises(exception.Deposed):
        fresh._store()
    assert policies(fresh) == {}
    fresh.elector.check = check
    fresh._store()
    assert len(policies(fresh)) == 3


def test_what_no_peer_told_is_looked_for(rooms, monkeypatch):
    told = []
    monkeypatch.setattr(rooms.know, 'invalidate',
                        lambda groups=None: told.append(groups))
    leading(rooms)
    rooms._check()
    rooms._check()
    assert told == [None] and rooms._generation == rooms.know.generation()
    monkeypatch.setattr(rooms.know, 'generation', lambda: 99)
    rooms._check()
    assert told == [None, None]


def test_who_leads_is_told(rooms, monkeypatch):
    monkeypatch.setattr(rooms.feed, 'epoch', 5)
    assert rooms.leadership() == {'epoch': 5, 'here': False,
                                  'reached': False}
    assert not rooms.leads()
    leading(rooms)
    assert rooms.leads()
    assert rooms.leadership() == {'epoch': 1, 'here': True, 'reached': True}
    rooms.elector.is_current = lambda: False
    assert not rooms.leads() and not rooms.leadership()['reached']


class Alive:
    def __init__(self, is_alive):
        self.is_alive = lambda: is_alive


@pytest.mark.parametrize(('one', 'other'), [
    (True, True), (True, False), (False, True)])
def test_whether_what_is_known_is_kept(rooms, monkeypatch, one, other):
    monkeypatch.setattr(rooms, '_follower', Alive(one))
    monkeypatch.setattr(rooms.feed, 'is_alive', lambda: other)
    assert rooms.keeps() == (one and other)
    leading(rooms)
    monkeypatch.setattr(rooms.know, 'is_alive', lambda: one)
    monkeypatch.setattr(rooms.follow, 'is_alive', lambda: other)
    assert rooms.keeps() == (one and other)


@pytest.mark.parametrize('checks', [True, False])
def test_hosts_of_a_launch_may_be_checked(rooms, monkeypatch, checks):
    monkeypatch.setattr(rooms, '_conf', stored.conf(
        probe={'check_groups': 'always' if checks else 'never'}))
    told, ordered = [], []
    monkeypatch.setattr(rooms.know, 'invalidate', told.append)
    monkeypatch.setattr(rooms.decide.orders, 'planned', ordered.append)
    rooms._planned(iter('ab'))
    assert told == [['a', 'b']]
    assert ordered == ([['a', 'b']] if checks else [])


@pytest.mark.parametrize('leads', [True, False])
def test_tenants_are_told_by_the_leader(rooms, leads):
    turns = []
    leading(rooms).elector.is_current = lambda: leads
    rooms._tell_tenants()
    rooms._teller = types.SimpleNamespace(turn=lambda: turns.append(1))
    rooms._tell_tenants()
    assert len(turns) == leads


def test_times_that_the_documents_name():
    assert (app.FOLLOW_S, app.CHECK_S, app.STORE_S, app.MOST_STORED) == (
        1.0, 5.0, 0.5, 1000)
    assert app.Parts() == app.Parts(True, True, True)


def make(tmp_path, parts=app.Parts(), **groups):
    conf = stored.conf(
        database={'connection': f'sqlite:///{tmp_path}/db.sqlite'},
        controller={'state_dir': str(tmp_path)},
        # Long: a busy machine takes the lead from nobody.
        leadership={'host': '127.0.0.1', 'port': 0, 'lease_s': 60.0},
        distributor={'host': '127.0.0.1', 'port': 0},
        api={'auth_strategy': 'noauth'}, **groups)
    return app.App(conf, parts=parts)


def test_a_process_alone_leads_until_it_stops(tmp_path):
    own = make(tmp_path, app.Parts(distributes=False, plans=False))
    assert not own.plans
    own.start()
    try:
        assert own.leads() and own.keeps() and own.epoch() == 1
        assert own._storer.is_alive() and own._checker.is_alive()
        assert own._watch.is_alive() and not own._follower.is_alive()
        # Without credentials of Nova nobody is told, and nothing moved.
        assert not own._feedback.is_alive() and not own._adviser.is_alive()
        assert own._teller is None
        assert not own.feed.is_alive() and own.decide.loop.leads()
        assert own.know.fence == own.elector.check == own.follow.fence
        assert own._source.published in own.decide.on_publish
        assert own._source.trains_ordered in own.decide.prober.on_ordered
        assert not own.ask._writer.is_alive()
        assert own.distribute._server is None
    finally:
        own.stop()
    for part in (own._storer, own._checker, own._watch, own.know,
                 own.follow):
        assert not part.is_alive()
    again = make(tmp_path, app.Parts(schedules=False))
    try:
        again.start()
        assert again.elector is None and not again.leads()
        assert again._follower.is_alive() and again.feed.is_alive()
        assert not again._storer.is_alive() and again.keeps()
        assert not again.decide.loop.leads()
        assert again.know.peer is again.feed
        assert again.ask._writer.is_alive() and again._source is None
        server = again.distribute._server
        assert server.is_alive()
    finally:
        again.stop()
    for one in (again._follower, again.feed, again.ask._writer,
                again._watch, server):
        assert not one.is_alive()


def test_with_credentials_of_nova_tenants_are_told_and_moves_looked_for(
        tmp_path):
    nowhere = 'http://127.0.0.1:1'
    own = make(
        tmp_path, app.Parts(distributes=False, plans=False),
        reevaluation={'interval_s': 3600.0}, nova={
            'auth_type': 'none', 'endpoint_override': nowhere,
            'placement_endpoint_override': nowhere,
            'feedback_interval_s': 3600.0})
    stops = []
    # It may be waiting for the leader before, and the lead does not.
    own._follower.stop = lambda wait=True: stops.append(wait)
    own.start()
    threads = (own._feedback, own._adviser, own._source._thread,
               own._storer, own.know._estimator, own.know._finder)
    try:
        assert own._teller is not None
        assert all(one.is_alive() for one in threads)
        assert (own._feedback._interval_s, own._adviser._interval_s,
                own._storer._interval_s, own._checker._interval_s,
                own._follower._interval_s, own._watch._interval_s) == (
            3600.0, 3600.0, 0.5, 5.0, 1.0, 5.0)
    finally:
        own.stop()
    assert not any(one.is_alive() for one in threads)
    assert stops == [False, True]


def test_only_an_embedded_database_is_upgraded(tmp_path, monkeypatch):
    upgraded = []
    monkeypatch.setattr(migration, 'upgrade', upgraded.append)
    for is_sqlite in (True, False):
        own = make(tmp_path)
        monkeypatch.setattr(own.database, 'is_sqlite', is_sqlite)
        monkeypatch.setattr(own, '_stand_by', lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.start()
        own._watch.stop()
        own.database.dispose()
    assert len(upgraded) == 1
