# SPDX-License-Identifier: Apache-2.0

"""Who leads, with clocks and locks that the test moves."""

import threading
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

    def look(self):
        """One that never leads."""
        return elector.Elector(self.database, None, LEASE_S,
                               clock=lambda: self.now_s)

    def lose_database(self):
        self._rename('leader', 'gone')

    def find_database(self):
        self._rename('gone', 'leader')

    def _rename(self, before, after):
        with self.database.engine.begin() as connection:
            connection.execute(sa.text(
                f'ALTER TABLE {before} RENAME TO {after}'))

    def turns(self, seconds, *electors):
        """All look at each step, and are asked."""
        for _ in range(round(seconds / 0.5)):
            self.now_s += 0.5
            for one in electors:
                one.is_current()
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


@pytest.mark.parametrize('gives_up_lock, takes_s', [(True, 1.5), (False, 3)])
def test_who_may_take_over_does_not_wait_for_its_turn(site, gives_up_lock,
                                                      takes_s):
    """A lease, or half of it, since it saw the last beat."""
    first, second = site.make('a'), site.make('b')
    start(first)
    assert first.pause_s() == 0.5
    site.now_s += 0.2
    start(second)
    since_s = site.now_s
    if gives_up_lock:
        first.lock.close()
    site.now_s += 0.4
    second.turn()
    for _ in range(20):
        if second.epoch is not None:
            break
        assert 0 < second.pause_s() <= 0.5
        site.now_s += second.pause_s()
        second.turn()
        assert site.now_s - since_s < takes_s + 0.1
    assert site.now_s - since_s == pytest.approx(takes_s)
    assert second.pause_s() == site.look().pause_s() == 0.5


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


def test_who_needs_long_to_begin_is_not_followed_meanwhile(site):
    def read_all(epoch):
        patience.wait_for(lambda: site.seen().beat >= 2, 'beats')
        site.led.append(('a', epoch))

    one = elector.Elector(site.database, Lock('a'), 0.1, on_lead=read_all)
    start(one)
    assert site.led == [('a', 1)]
    beat = site.seen().beat
    time.sleep(0.1)
    assert site.seen().beat == beat


def test_who_hangs_while_it_begins_is_followed(site, monkeypatch, caplog):
    monkeypatch.setattr(elector, 'HANGS_S', 0.3)
    end = threading.Event()
    one = elector.Elector(site.database, Lock('a'), 0.1,
                          on_lead=lambda epoch: end.wait(60))
    thread = threading.Thread(target=one.turn)
    thread.start()
    try:
        patience.wait_for(lambda: 'hangs' in caplog.text, 'the end of beats')
        assert site.seen().beat >= 2 and not end.is_set()
        second = site.make('b')
        start(second)
        site.turns(4, second)
        assert site.led == [('b', 2)]
    finally:
        end.set()
        thread.join()
    one.turn()
    assert not one.is_current()


def test_who_reads_for_long_does_not_hang(site, monkeypatch):
    monkeypatch.setattr(elector, 'HANGS_S', 0.3)

    def read_all(epoch):
        end_s = time.thread_time() + 0.5
        while time.thread_time() < end_s:
            pass
        beat = site.seen().beat
        patience.wait_for(lambda: site.seen().beat > beat, 'a beat')

    start(elector.Elector(site.database, Lock('a'), 0.1, on_lead=read_all))


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
    site.lose_database()
    site.turns(20, first, second)
    assert first.is_current() and site.deposed == []
    site.find_database()
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
    site.now_s += LEASE_S + 0.1
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
    one.lock.works = False
    one.start()
    assert one.lock.works
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


def beyond_its_lease(site, *peers):
    """A leader that could not write for longer, and tries on."""
    one = site.make('a')
    start(one)
    one.peers.arrived(dict.fromkeys(peers, True), site.now_s)
    one.turn()
    site.lose_database()
    site.turns(LEASE_S, one)
    assert one.is_current()
    site.turns(0.5, one)
    return one


def test_a_leader_without_a_database_asks_its_peers(site):
    one = beyond_its_lease(site, 'b', 'c')
    assert not one.is_current() and one.elsewhere() == ''
    for name, is_current in (('b', False), ('c', True)):
        one.peers.said(name, False, site.now_s)
        assert one.is_current() is is_current
    assert one.elsewhere() is None
    one.peers.said('b', True, site.now_s)
    assert not one.is_current()
    one.peers.said('b', False, site.now_s)
    one.peers.arrived({'b': True}, site.now_s)
    assert not one.is_current()
    # It can write again: who left is not missed.
    site.find_database()
    one.turn()
    assert one.is_current() and site.deposed == []
    site.lose_database()
    site.turns(LEASE_S + 0.5, one)
    one.peers.said('b', False, site.now_s)
    assert one.is_current()


def test_a_leader_that_was_halted_looks_first(site):
    """One whose database does not answer is asked all the time."""
    one = beyond_its_lease(site)
    for _ in range(20):
        site.now_s += LEASE_S
        assert one.is_current()
    site.now_s += LEASE_S + 0.1
    assert not one.is_current()
    assert not one.is_current()
    one.turn()
    assert one.is_current()


def test_what_peers_say_does_not_bring_a_deposed_one_back(site):
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    site.turns(10, second)
    first.turn()
    assert first.peers.have_no_database(site.now_s)
    assert not first.is_current()


def test_peers_do_not_make_a_leader(site):
    one = site.look()
    one.turn()
    assert one.peers.have_no_database(site.now_s)
    assert not one.is_current()


def test_one_without_a_lock_only_looks(site):
    one = site.look()
    assert one.seen is None and one.elsewhere() == ''
    site.turns(20, one)
    assert one.epoch is None and one.elsewhere() == ''
    assert one.seen == site.seen() and one.seen.epoch == 0
    with site.database.writer() as session:
        leader.take_over(session, leader.current(session), 'x', 'x:1')
    one.turn()
    assert one.seen == site.seen() and one.elsewhere() == 'x:1'
    # One that stands still is still the leader, as far as is known.
    site.turns(20, one)
    assert one.elsewhere() == 'x:1'


def test_a_leader_is_seen_to_lead_while_it_beats(site):
    one = site.look()
    assert not one.sees_leader()
    one.turn()
    # Nobody has led yet.
    assert one.seen is not None and not one.sees_leader()
    with site.database.writer() as session:
        leader.take_over(session, leader.current(session), 'x', 'x:1')
    one.turn()
    site.now_s += LEASE_S / 2
    assert one.sees_leader()
    # A look that hangs tells nothing.
    site.now_s += 0.1
    assert one.sees_leader()
    one.turn()
    assert not one.sees_leader()
    with site.database.writer() as session:
        leader.beat(session, one.seen.epoch)
    one.turn()
    assert one.sees_leader()
    site.now_s += LEASE_S / 2 + 0.1
    one.turn()
    assert not one.may_be_led()
    site.lose_database()
    assert not one.may_be_led()
    one.turn()
    assert not one.sees_leader() and one.may_be_led()
    site.find_database()
    one.turn()
    site.now_s += LEASE_S / 2 + 0.1
    one.turn()
    assert not one.may_be_led()
    site.now_s += LEASE_S
    assert one.may_be_led()


def test_who_leads_is_told_to_those_that_come(site):
    first, second = site.make('a'), site.make('b')
    assert first.elsewhere() == second.elsewhere() == ''
    start(first)
    start(second)
    assert first.elsewhere() is None and second.elsewhere() == 'a:1'
    site.turns(10, second)
    # It stood still, and does not know of the other one yet.
    assert first.elsewhere() == '' and second.elsewhere() is None
    assert (first.seen.epoch, second.seen.epoch) == (1, 2)


def test_a_database_answers_within_a_lease(site):
    for one in (site.look(), site.make('a')):
        site.now_s += 0.1
        assert not one.has_database()
        one.turn()
        site.now_s += LEASE_S
        assert one.has_database()
        site.now_s += 0.1
        assert not one.has_database()
        one.turn()
        site.lose_database()
        site.turns(LEASE_S, one)
        assert one.has_database()
        site.turns(0.5, one)
        assert not one.has_database()
        site.find_database()


@pytest.mark.parametrize('later_s', [0.0, 0.49])
def test_a_peer_says_so_before_the_leader_stops(site, later_s):
    """Or a leader whose database is away for all would let go of all."""
    first, second = site.make('a'), site.make('b')
    start(first)
    start(second)
    first.turn()
    site.now_s += later_s
    second.turn()
    site.lose_database()
    for elapsed_s in (1.0, LEASE_S - elector.SAID_S - later_s + 0.01):
        site.now_s += elapsed_s - (elapsed_s > 1)
        assert second.is_in_touch() is (elapsed_s <= 1)
        assert first.is_current() and second.has_database()


def test_time_is_taken_before_the_database_is_asked(site):
    """An answer that took long is as old as its question."""
    for one in (site.look(), site.make('a')):
        one.turn()
        reader, writer = site.database.reader, site.database.writer

        def slow(make):
            site.now_s += LEASE_S
            return make()

        site.database.reader = lambda make=reader: slow(make)
        site.database.writer = lambda make=writer: slow(make)
        one.turn()
        del site.database.reader, site.database.writer
        assert one.has_database()
        site.now_s += 0.1
        assert not one.has_database()


def test_one_that_looks_starts_without_a_database(site):
    site.lose_database()
    one = site.look()
    one.start()
    try:
        assert one._thread.is_alive() and one.seen is None
    finally:
        one.stop()
    assert not one._thread.is_alive()


def test_one_that_looks_knows_who_leads_from_its_start(site):
    start(site.make('a'))
    one = site.look()
    one.start()
    try:
        assert one.elsewhere() == 'a:1'
    finally:
        one.stop()


def test_one_that_may_lead_does_not_start_without_a_database(site):
    site.lose_database()
    one = site.make('a')
    with pytest.raises(exception.VirtcoException):
        one.start()
    assert not one._thread.is_alive()


def test_one_that_started_outlives_what_it_cannot_do(site, caplog):
    one = site.make('a')
    Lock.holder = 'other'
    one.start()
    one._stop.set()
    one._thread.join()
    with site.database.writer() as session:
        leader.resign(session, 0)
    Lock.holder = None
    one._on_lead = lambda epoch: 1 / 0
    one.turn()
    assert site.deposed == ['a'] and not one.is_current()
    assert 'This process cannot lead.' in caplog.text
    one.stop()


def test_what_was_not_foreseen_is_one_line(site, caplog):
    one = site.look()
    one.turn()
    assert one.is_answered()
    one._database = None
    one.turn()
    assert 'Who leads is unknown.' in caplog.text
    assert not one.is_answered() and one.has_database()


def test_whether_the_database_answers(site):
    one = site.look()
    one.turn()
    assert one.is_answered() and one.has_database()
    site.lose_database()
    one.turn()
    assert not one.is_answered() and one.has_database()
    site.find_database()
    one.turn()
    assert one.is_answered()
    site.now_s += LEASE_S + 0.1
    assert not one.is_answered() and not one.has_database()
