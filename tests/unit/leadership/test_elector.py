# SPDX-License-Identifier: Apache-2.0

"""Who leads, with clocks and locks that the test moves."""

import time

import pytest
import sqlalchemy as sa

from tests import patience
from virtco import exception
from virtco.db import leader
from virtco.db import migration
from virtco.db import session as db_session
from virtco.leadership import elector

LEASE_S = 3.0


class Lock:
    """One lock for all electors of a test."""

    holder = None

    def __init__(self, name, is_file=False):
        self._name = name
        self.is_file = is_file
        self.works = True

    def start(self):
        self.works = True

    def is_held(self):
        if self.works and Lock.holder is None:
            Lock.holder = self._name
        return Lock.holder == self._name

    def close(self):
        self.works = False
        if Lock.holder == self._name:
            Lock.holder = None


class Site:
    def __init__(self, path):
        Lock.holder = None
        self.now_s = 100.0
        self.database = db_session.Database(f'sqlite:///{path}')
        migration.upgrade(self.database)
        self.led, self.deposed = [], []

    def make(self, name, **kwargs):
        lock = Lock(name, **kwargs)
        found = elector.Elector(
            self.database, lock, LEASE_S, lambda: f'{name}:1',
            lambda epoch: self.led.append((name, epoch)),
            lambda: self.deposed.append(name), lambda: self.now_s)
        found.lock = lock
        return found

    def turns(self, seconds, *electors):
        """Whatever step, all look at each."""
        for _ in range(round(seconds / 0.5)):
            self.now_s += 0.5
            for one in electors:
                one.turn()

    def seen(self):
        with self.database.reader() as session:
            return leader.current(session)


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / 'db')
    yield found
    found.database.dispose()


def start(one):
    """Without its thread: the test takes the turns."""
    one.turn()


def test_the_first_leads_at_once_and_the_next_waits(site):
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    site.turns(20, first, second)
    assert site.led == [('a', 1)]
    assert first.is_current() and not second.is_current()
    assert (site.seen().epoch, site.seen().address) == (1, 'a:1')


@pytest.mark.parametrize('gives_up_lock, is_file, within_s', [
    (True, True, 0.5), (True, False, 2.0), (False, False, 3.5)])
def test_a_silent_leader_is_followed(site, gives_up_lock, is_file, within_s):
    """kill -9 gives the lock up, standing still does not."""
    first = site.make('a', is_file=is_file)
    second = site.make('b', is_file=is_file)
    start(first)
    start(second)
    site.turns(5, first, second)
    if gives_up_lock:
        first.lock.close()
    site.turns(within_s, second)
    assert site.led == [('a', 1), ('b', 2)]


def test_who_stood_still_looks_before_it_leads_on(site):
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    site.turns(10, second)
    assert site.led == [('a', 1), ('b', 2)]
    assert not first.is_current()
    with pytest.raises(exception.Deposed), site.database.writer() as session:
        first.check(session)
    with site.database.writer() as session:
        second.check(session)
    first.turn()
    assert site.deposed == ['a'] and not first.is_current()


def test_one_of_many_takes_over(site):
    everybody = [site.make(name) for name in 'abcdef']
    for one in everybody:
        one.lock.works = False
        start(one)
    site.turns(20, *everybody)
    assert len(site.led) == 1 and site.led[0][1] == 1


def test_without_the_database_nothing_changes(site):
    """Nobody can take over, so the leader goes on."""
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    site.turns(2, first, second)
    with site.database.engine.begin() as connection:
        connection.execute(sa.text('ALTER TABLE leader RENAME TO gone'))
    site.turns(20, first, second)
    assert first.is_current() and site.deposed == []
    with site.database.engine.begin() as connection:
        connection.execute(sa.text('ALTER TABLE gone RENAME TO leader'))
    # Its silence is counted from here on.
    site.turns(2, second)
    assert site.led == [('a', 1)]
    site.turns(10, first, second)
    assert site.led == [('a', 1)]


def test_who_ends_in_order_leaves_no_name(site):
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    first.stop()
    site.turns(0.5, second)
    assert site.led == [('a', 1), ('b', 2)]


def test_one_that_cannot_lead_is_deposed(site):
    one = site.make('a')

    def fail(epoch):
        raise exception.DatabaseUnavailable(why='away')

    one._on_lead = fail
    start(one)
    assert site.deposed == ['a'] and not one.is_current()
    # It writes nothing, though the database still names it.
    with pytest.raises(exception.Deposed), site.database.writer() as session:
        one.check(session)


def test_what_keeps_it_from_leading_keeps_it_from_starting(site):
    one = site.make('a')

    def fail(epoch):
        raise exception.Invalid(field='a', value='b', limit='c')

    one._on_lead = fail
    with pytest.raises(exception.Invalid):
        one.start()
    one.stop()


@pytest.mark.parametrize('holds, is_file, stood_s, leads', [
    (False, False, 2.9, False), (False, False, 3.0, True),
    (True, False, 1.4, False), (True, False, 1.5, True),
    (True, True, 0.0, True)])
def test_patience_with_one_that_stands_still(site, holds, is_file, stood_s,
                                             leads):
    with site.database.writer() as session:
        leader.take_over(session, leader.current(session), 'x', 'x:1')
    one = site.make('a', is_file=is_file)
    Lock.holder = 'a' if holds else 'other'
    start(one)
    site.now_s += stood_s
    one.turn()
    assert bool(site.led) == leads == one.is_current()


def test_a_leader_knows_for_how_long_it_leads(site):
    one = site.make('a')
    assert not one.is_current()
    with pytest.raises(exception.Deposed), site.database.writer() as session:
        one.check(session)
    start(one)
    site.now_s += LEASE_S
    assert one.is_current()
    site.now_s += 0.1
    assert not one.is_current()
    one.turn()
    assert one.is_current()
    site.now_s += 2
    one.turn()
    site.now_s += 2
    assert one.is_current()


def test_a_deposed_one_does_nothing_at_its_end(site):
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    site.turns(10, second)
    first.turn()
    first.stop()
    seen = site.seen()
    assert (seen.epoch, seen.address) == (2, 'b:1') and seen.name
    assert not first.lock.works
    second.stop()
    assert not site.seen().name


def test_six_turns_make_a_lease(site):
    one, waited_s = site.make('a'), []

    class Turns:
        def wait(self, for_s):
            waited_s.append(for_s)
            return len(waited_s) == 3

    one._stop = Turns()
    one._run()
    assert waited_s == [LEASE_S / 6] * 3 and site.led == [('a', 1)]


def test_it_beats_and_ends_by_its_own_thread(site):
    one = site.make('a')
    one._lease_s, one._clock = 0.06, time.monotonic
    one.lock.works = False
    one.start()
    try:
        assert site.led == [('a', 1)]
        first = site.seen()
        patience.wait_for(lambda: site.seen() != first, 'a beat')
        with site.database.writer() as session:
            leader.take_over(session, leader.current(session), 'x', 'x:1')
        patience.wait_for(lambda: site.deposed == ['a'], 'the end')
        patience.wait_for(lambda: not one._thread.is_alive(), 'its thread')
    finally:
        one.stop()
    assert site.deposed == ['a']


def test_its_thread_ends_with_it(site):
    one = site.make('a')
    one._lease_s, one._clock = 6.0, time.monotonic
    one.start()
    assert one._thread.is_alive() and one._thread.daemon
    one.stop()
    assert not one._thread.is_alive() and not site.seen().name
    # One that never began has no thread to wait for.
    site.make('b').stop()


def test_who_leads_is_said_when_it_changes(site, caplog):
    caplog.set_level('INFO')
    one = site.make('a')
    Lock.holder = 'other'
    one.turn()
    assert caplog.messages == ['Epoch 0: nobody leads.']
    one.turn()
    with site.database.writer() as session:
        leader.take_over(session, leader.current(session), 'x', 'x:1')
    one.turn()
    with site.database.writer() as session:
        leader.beat(session, 1)
    one.turn()
    assert caplog.messages[1:] == ['Epoch 1: x leads.']
