# SPDX-License-Identifier: Apache-2.0

"""What is heard of a distributor, and what its silence means."""

import json
import logging
import math
import os
import socket
import tempfile
import threading
import time
import types

from hypothesis import given
from hypothesis import strategies as st
import msgspec
from oslo_config import cfg
import pytest

from edge_module import edge_options as edge_conf
from edge_module import kept_state as state
from edge_module import stream
from edge_module import talk
from tests import patience
from tests.unit import made
from virtco import exception
from virtco.wire import frames
from virtco.wire import messages

WELCOME = {'epoch': 4, 'heartbeat_s': 9.0, 'alive_s': 30.0,
           'spread_s': 2.5, 'most_bytes': 10_000}
HERE = talk.Address('d1', 1, False, 'mine')


@pytest.fixture
def files(tmp_path):
    return state.StateDir(str(tmp_path))


@pytest.fixture
def link(monkeypatch, files):
    conf = cfg.ConfigOpts()
    edge_conf.register_opts(conf)
    conf([], project='virtco')
    conf.set_override('host', 'h1', 'edge')
    monkeypatch.setattr(talk, 'TIMEOUT_S', 0.2)
    offered = []
    found = stream.Link(conf, lambda: 6, threading.Event(), files,
                        lambda: offered.append(1))
    found.offered = offered
    yield found
    found.outbox.wake_end.close()
    found.outbox._wake.close()


def policy(generation, **fields):
    return messages.Policy(generation, {'n': generation}, **fields)


def test_the_newest_policy_is_taken_once(link):
    assert not link.is_up and link.renewed_s == -math.inf
    link._set_up(True)
    assert link.is_up and link.take_policy() is None
    link._hear(policy(3))
    link._hear(policy(5))
    assert len(link.offered) == 2
    assert link.take_policy() == policy(5)
    assert link.take_policy() is None
    with pytest.raises(exception.PolicyInvalid):
        link._hear(policy(7, epoch=2))
        link._hear(policy(8, epoch=1))
    assert link.take_policy() == policy(7, epoch=2)
    link._hear(policy(9, epoch=2))
    link._set_up(False)
    assert link.take_policy() is None and not link.is_up


def test_a_train_is_for_one_taker(link):
    link._set_up(True)
    assert link.wait_train(0) is None
    link._hear(messages.Probe(made.order('a')))
    assert link.wait_train(60) == made.order('a')
    assert link.wait_train(0) is None
    link._hear(messages.Probe(made.order('b')))
    link._set_up(False)
    assert link.wait_train(0) is None


def test_a_train_ends_the_wait_for_one(link):
    found = []
    thread = threading.Thread(
        target=lambda: found.append(link.wait_train(60)))
    thread.start()
    thread.join(0.02)
    assert not found
    link._hear(messages.Probe(made.order('a')))
    thread.join(5)
    assert found == [made.order('a')]


def test_who_names_no_leader_is_older_than_any(link):
    link._hear(policy(3))
    link._hear(policy(5, epoch=1))
    with pytest.raises(exception.PolicyInvalid):
        link._hear(policy(7))
    assert link.take_policy() == policy(5, epoch=1)


def test_a_refusal_ends_it(link):
    with pytest.raises(exception.ControllerUnavailable, match='told to'):
        link._hear(messages.Refused('told to'))


def test_what_renews_the_policy(link, monkeypatch):
    """A relay may be there while nobody leads."""
    now_s = [100.0]
    monkeypatch.setattr(stream.time, 'monotonic', lambda: now_s[0])
    for message, is_led in (
            (messages.Alive(4, 2.0), True), (messages.Alive(0, 2.0), False),
            (messages.Resend(), True),
            (messages.Probe(made.order()), True), (policy(5, epoch=4), True)):
        now_s[0] += 1.0
        before_s = link.renewed_s
        link._hear(message)
        assert link._heard_s == now_s[0]
        assert link.renewed_s == (now_s[0] if is_led else before_s)


def test_one_that_is_silent_is_left(link, monkeypatch):
    now_s = 100.0
    monkeypatch.setattr(stream.time, 'monotonic', lambda: now_s)
    link._alive_s = 9.0
    # A server that grew needs more time.
    link._hear(messages.Alive(0, 4.0))
    now_s += 7.5
    assert link._hopes_s() == 0.5
    now_s += 0.5
    assert link._hopes_s() == 0.0


class Talking:
    """A conversation over a pair of sockets; the test is the distributor."""

    def __init__(self, link):
        self.ours, theirs = socket.socketpair()
        self.ours.settimeout(60)
        self._found = []
        self._reader = frames.Reader()
        self._thread = threading.Thread(
            target=lambda: self._found.append(link._converse(theirs, HERE)))
        self._thread.start()

    def say(self, kind, **fields):
        self.ours.sendall(made.frame(kind, **fields))

    def hear(self):
        """All messages of the next frames."""
        while True:
            found = [msgspec.json.decode(one) for one
                     in self._reader.feed(self.ours.recv(1 << 16))]
            if found:
                return found

    def end(self):
        self.ours.close()
        self._thread.join(60)
        return self._found


def test_a_conversation(link):
    link._epochs.hear(4)
    talking = Talking(link)
    (hello,) = talking.hear()
    assert hello == {'type': 'hello', 'version': frames.VERSION, 'host': 'h1',
                     'epoch': 4, 'generation': 6, 'ticket': 'mine'}
    link._outage.begin('It was away before.')
    talking.say('welcome', **WELCOME)
    patience.wait_for(lambda: link.is_up, 'the connection')
    talking.say('policy', generation=5, policy={'n': 5}, epoch=4)
    patience.wait_for(lambda: link.offered, 'the policy')
    assert link.take_policy() == policy(5, epoch=4)
    assert link._outage._began_s is None
    link.say_taken(5, 'too odd')
    assert talking.hear() == [{'type': 'nack', 'epoch': 4, 'generation': 5,
                               'error': 'too odd'}]
    link.outbox.put_report(made.report(applied_generation=3))
    (report,) = talking.hear()
    assert report['report']['applied_generation'] == 3
    link.outbox.put_measurement(made.measurement('h1', 'h2', 8.0))
    (told,) = talking.hear()
    assert told['measurement']['rate_bps'] == 8.0
    talking.say('resend')
    talking.say('probe', order=made.order('b'))
    assert link.wait_train(60) == made.order('b')
    (report,) = talking.hear()
    assert report['type'] == 'report'
    link.outbox._due_s = 0.0
    link.outbox._rouse()
    assert talking.hear() == [{'type': 'heartbeat'}]
    renewed_s = link.renewed_s
    talking.say('alive', epoch=4, alive_s=20.0)
    patience.wait_for(lambda: link.renewed_s > renewed_s, 'the answer')
    link.outbox._due_s = time.monotonic() + 1.0
    talking.say('alive', epoch=4, alive_s=20.0)
    assert talking.hear() == [{'type': 'heartbeat'}]
    assert talking.end() == [2.5]
    assert not link.is_up and link._outage._began_s is not None
    assert link._alive_s == 20.0


def test_a_relay_without_a_leader_renews_nothing(link):
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **WELCOME | {'epoch': 0})
    patience.wait_for(lambda: link.is_up, 'the connection')
    assert link.renewed_s == -math.inf < link._heard_s
    talking.end()


@pytest.mark.parametrize('spread_s, last_s', [(0.0, 2.0), (0.5, 5.0),
                                              (30.0, 10.0)])
def test_hosts_of_a_small_cloud_try_more_often(link, spread_s, last_s):
    assert link._backoff_s(20) == 10.0
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **WELCOME | {'spread_s': spread_s})
    patience.wait_for(lambda: link.is_up, 'the connection')
    assert talking.end() == [spread_s]
    assert link._backoff_s(20) == last_s
    assert link._backoff_s(1) == 0.4


def test_who_says_nothing_of_the_return_gets_it_at_once(link):
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **{name: value for name, value in WELCOME.items()
                              if name != 'spread_s'})
    patience.wait_for(lambda: link.is_up, 'the connection')
    assert talking.end() == [0.0]


def test_another_one_is_tried_after_one_that_stands_still(link, monkeypatch):
    link._addresses = [HERE, HERE._replace(host='d2')]
    monkeypatch.setattr(link, '_hopes_s', lambda: -1.0)
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **WELCOME)
    assert talking.ours.recv(1) == b''
    assert talking.end() == [2.5] and not link.is_up
    assert link._addresses == [HERE._replace(host='d2')]
    assert link._failed == {HERE[:2]}
    assert link._silent == HERE[:2]


def test_one_that_reads_nothing_is_left_as_soon_as_one_that_is_silent(
        link, monkeypatch):
    """Also while the rest of a long report waits, which it would not read."""
    waits = [[bytes(8 << 20)]]
    monkeypatch.setattr(link.outbox, 'take',
                        lambda: waits.pop() if waits else [])
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **WELCOME | {'alive_s': 0.3})
    link.outbox._rouse()
    patience.wait_for(lambda: link._silent == HERE[:2], 'the end of hope', 20)
    assert not waits
    talking.end()


def test_a_long_report_keeps_nothing_from_being_heard(link, monkeypatch):
    report = os.urandom(8 << 20)
    waits = [[report], [b'next']]
    monkeypatch.setattr(link.outbox, 'take',
                        lambda: waits.pop(0) if waits else [])
    talking = Talking(link)
    talking.hear()
    talking.say('welcome', **WELCOME)
    link.outbox._rouse()
    patience.wait_for(lambda: waits == [[b'next']], 'the report', 20)
    talking.say('policy', generation=5, policy={'n': 5}, epoch=4)
    patience.wait_for(lambda: link.offered, 'the policy', 20)
    found = b''
    while len(found) < len(report) + 4:
        found += talking.ours.recv(1 << 20)
    assert found == report + b'next'
    talking.end()


def test_one_that_refuses_is_tried_last_and_one_that_ends_is_not(link):
    for says, failed in (((), set()), ((('refused', {'why': 'told to'}),),
                                       {HERE[:2]})):
        link._addresses = [HERE, HERE._replace(host='d2')]
        talking = Talking(link)
        talking.hear()
        talking.say('welcome', **WELCOME)
        for kind, fields in says:
            talking.say(kind, **fields)
            assert talking.ours.recv(1) == b''
        talking.end()
        assert link._failed == failed
        assert len(link._addresses) == 2 - len(failed)


class Running:
    """:meth:`stream.Link.run` between neighbours that do as the test says.

    :param outcomes: of each connection an error, or how long to spread the
        return over after 10 s, or a pair of both times.
    :ivar tried: the addresses, and after each how long is waited at most.
    :ivar timeouts_s: of the connections.
    """

    def __init__(self, link, monkeypatch, found, outcomes):
        self.tried, self.timeouts_s = [], []
        self._link, self._outcomes = link, list(outcomes)
        monkeypatch.setattr(stream.talk, 'EdgeClient', lambda conf: (
            types.SimpleNamespace(find=lambda: self._find(found))))
        monkeypatch.setattr(stream.talk, 'connect', self._connect)
        monkeypatch.setattr(link, '_converse', self._converse)
        monkeypatch.setattr(stream.random, 'uniform',
                            lambda least, most: most - least)
        monkeypatch.setattr(stream.time, 'monotonic', lambda: self._now_s)
        self._now_s = 100.0
        link._stop.wait = self.tried.append
        link.run()

    def _find(self, found):
        self.tried.append('find')
        return list(found)

    def _connect(self, conf, address):
        self.tried.append(address.host)
        self.timeouts_s.append(address.timeout_s)
        return socket.socket()

    def _converse(self, sock, address):
        outcome = self._outcomes.pop(0)
        if not self._outcomes:
            self._link._stop.set()
        if isinstance(outcome, Exception):
            raise outcome
        lasted_s, spread_s = (outcome if isinstance(outcome, tuple)
                              else (10.0, outcome))
        self._now_s += lasted_s
        return spread_s


PAIR = [talk.Address('d1', 1, False), talk.Address('d2', 2, False)]


@pytest.mark.parametrize(('found', 'outcomes', 'tried'), [
    # The one that was left is asked again, where no ticket is shown.
    (PAIR, [2.5, 2.5], ['find', 'd1', 2.5, 'd1', 2.5]),
    ([HERE], [2.5, 2.5], ['find', 'd1', 2.5, 'find', 'd1', 2.5]),
    # The next one, with more time; after three failures all are asked for.
    (PAIR + PAIR, [OSError()] * 4, [
        'find', 'd1', 0.4, 'd2', 0.8, 'd1', 1.6, 'find', 'd1', 3.2]),
    (PAIR[:1], [OSError()] * 2, ['find', 'd1', 0.4, 'find', 'd1', 0.8]),
    (PAIR, [OSError()] * 7, [
        'find', 'd1', 0.4, 'd2', 0.8, 'find', 'd1', 1.6,
        'find', 'd1', 3.2, 'd2', 6.4, 'find', 'd1', 10.0,
        'find', 'd1', 10.0]),
    # Who does not lead names the one that does.
    (PAIR, [talk.Moved(PAIR[1]), 2.5, OSError(), 2.5], [
        'find', 'd1', 0.2, 'd2', 2.5, 'd2', 0.4, 'find', 'd1', 2.5]),
    (PAIR, [talk.Moved(PAIR[1]), OSError(), 2.5], [
        'find', 'd1', 0.2, 'd2', 0.8, 'find', 'd1', 2.5]),
    # Each says that the other one leads.
    (PAIR, [talk.Moved(PAIR[1]), talk.Moved(PAIR[0]), 2.5], [
        'find', 'd1', 0.2, 'd2', 0.4, 'd1', 2.5]),
    # A connection that ends early is a failure, and a later one is not.
    (PAIR, [(0.1, 0.0)] * 2 + [(9.9, 0.0), (0.1, 2.5), 0.0, OSError()], [
        'find', 'd1', 0.4, 'd1', 0.8, 'd1', 1.6, 'd1', 3.2, 'd1', 0.0, 'd1',
        0.4])])
def test_whom_it_connects_to(link, monkeypatch, found, outcomes, tried):
    assert Running(link, monkeypatch, found, outcomes).tried == tried


def test_those_that_failed_are_tried_last(link, monkeypatch):
    """Each time all are asked for, since a ticket is shown."""
    shown = [one._replace(ticket='t') for one in PAIR]
    assert Running(link, monkeypatch, shown, [
        OSError(), OSError(), OSError(), 2.5, 2.5, OSError(), 2.5]).tried == [
            'find', 'd1', 0.4, 'find', 'd2', 0.8, 'find', 'd1', 1.6,
            'find', 'd1', 2.5, 'find', 'd1', 2.5, 'find', 'd1', 0.4,
            'find', 'd2', 2.5]
    assert link._failed == set()


def test_one_that_was_silent_has_less_time_once(link, monkeypatch):
    """It may be off, and its successor is known a moment later."""
    link._silent = PAIR[0][:2]
    running = Running(link, monkeypatch, PAIR[:1], [OSError(), 2.5])
    assert running.timeouts_s == [talk.AGAIN_S, talk.TIMEOUT_S]


def lines(caplog):
    return [record.getMessage() for record in caplog.records
            if record.levelno > logging.DEBUG]


def test_a_distributor_that_is_away_is_told(link, monkeypatch, caplog):
    Running(link, monkeypatch, PAIR, [OSError('no route')] * 3)
    assert lines(caplog) == ['No connection to the distributor: no route. '
                             'The last policy holds.']


def test_an_outage_has_a_duration(monkeypatch, caplog):
    caplog.set_level(logging.INFO)
    now_s = 100.0
    monkeypatch.setattr(stream.time, 'monotonic', lambda: now_s)
    found = stream.Outage()
    found.begin('Away.')
    now_s += 2.5
    found.begin('Away.')
    now_s += 2.5
    found.end()
    assert lines(caplog)[1] == 'The controller answers again after 5.0 s.'


def test_many_failures_are_one_line(caplog):
    caplog.set_level(logging.DEBUG)
    found = stream.Outage()
    found.end()
    found.begin('Lost the distributor: it was closed.')
    found.begin('No connection to the distributor: refused.')
    assert lines(caplog) == [
        'Lost the distributor: it was closed. The last policy holds.']
    found.end()
    found.end()
    assert len(lines(caplog)) == 2
    assert 'answers again after' in lines(caplog)[1]
    found.begin('Again.')
    assert len(lines(caplog)) == 3


@given(st.lists(st.integers(0, 9), max_size=8))
def test_the_newest_scheduler_is_listened_to(heard):
    with tempfile.TemporaryDirectory() as directory:
        check_epochs(stream.Epochs(state.StateDir(directory)), heard)


def check_epochs(found, heard):
    newest = 0
    for epoch in heard:
        if epoch < newest:
            with pytest.raises(exception.PolicyInvalid) as caught:
                found.hear(epoch)
            assert caught.value.kwargs == {
                'field': 'epoch', 'value': epoch,
                'limit': f'at least {newest}'}
        else:
            found.hear(epoch)
        newest = max(newest, epoch)
        assert found.newest == newest


def test_the_newest_scheduler_is_known_after_a_start(files):
    stream.Epochs(files).hear(0)
    assert files.load('epoch') is None
    stream.Epochs(files).hear(3)
    written = os.stat(files.path / 'epoch.json').st_ino
    again = stream.Epochs(files)
    assert again.newest == 3
    again.hear(3)
    assert os.stat(files.path / 'epoch.json').st_ino == written
    with pytest.raises(exception.PolicyInvalid):
        again.hear(2)


@pytest.mark.parametrize('saved, newest', [
    (1, 1), (0, 0), (-2, 0), (True, 0), ('3', 0), (None, 0)])
def test_a_saved_epoch_that_is_none_is_not_taken(files, saved, newest):
    (files.path / 'epoch.json').write_text(json.dumps(saved))
    assert stream.Epochs(files).newest == newest
