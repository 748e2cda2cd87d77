# SPDX-License-Identifier: Apache-2.0

"""What feed, source and intake decide, without threads and sockets."""

import asyncio
import types

from oslo_config import cfg
import pytest

from tests import patience
from tests.unit import made
from virtco import exception
from virtco import metrics
from virtco.conf import opts
from virtco.distribute import feed as feeds
from virtco.distribute import frames
from virtco.distribute import intake
from virtco.distribute import peers
from virtco.distribute import source as sources

REPORT = made.report()
OTHER = made.report(applied_generation=9)
TRAIN = made.measurement('h1', 'h2', 1e9)


class Writer:
    """Keeps what is written; so many bytes of it wait."""

    def __init__(self, decoder=peers.SAID):
        self.said, self.waiting = [], 0
        self._decoder, self._reader = decoder, frames.Reader(peers.MOST_BYTES)
        self.transport, self.aborted = self, False

    def get_write_buffer_size(self):
        return self.waiting

    def write(self, data):
        self.said += map(self._decoder.decode, self._reader.feed(data))

    def abort(self):
        self.aborted = True

    def take(self):
        said, self.said = self.said, []
        return said


@pytest.fixture
def feed():
    conf = cfg.ConfigOpts()
    opts.register_opts(conf)
    conf([])
    came, trains = [], []
    found = feeds.Feed(conf, None, came.extend,
                       lambda *args: trains.append(args),
                       lambda: {'h1': OTHER, 'h2': OTHER}.items())
    found.came, found.trains = came, trains
    yield found
    found._loop.close()


def turn(feed):
    feed._loop.run_until_complete(asyncio.sleep(0))


def connected(feed, epoch=1):
    writer = Writer()
    feed._hear([peers.Welcome(epoch)], writer)
    turn(feed)
    return writer


def policy(host='h1', epoch=1, generation=1):
    return peers.Policy(host, epoch, generation, b'{}')


def test_who_joins_is_told_everything(feed):
    feed._followed = {'h1': 3, 'h2': 8}
    feed._policies = {'h1': policy(generation=5), 'h2': policy('h2')}
    feed._reports = {'h1': REPORT}
    feed._say(peers.Forgiven('p'))
    turn(feed)
    assert not feed.is_connected
    writer = connected(feed, 4)
    assert feed.is_connected and feed.epoch == 4
    follow, changed, forgiven, told = writer.take()
    assert follow == peers.Follow({'h1': 5, 'h2': 8})
    assert changed == peers.Changed(None) and forgiven == peers.Forgiven('p')
    # What came meanwhile is newer than what was known.
    assert told.reports == {'h1': REPORT, 'h2': OTHER}
    with pytest.raises(exception.Deposed):
        feed._hear([peers.Welcome(3)], writer)
    feed._hear([peers.Welcome(4)], writer)


def test_news_are_sent_once_and_the_newest_alone(feed):
    writer = connected(feed)
    writer.take()
    for said in (REPORT, OTHER):
        feed._add_report('h1', said)
    feed._add_heard({'h2'})
    feed._add_heard({'h3'})
    turn(feed)
    (told,) = writer.take()
    assert told.reports == {'h1': OTHER}
    assert set(told.heard) == {'h2', 'h3'}
    turn(feed)
    assert writer.take() == []
    for add in (lambda: feed._add_report('h1', REPORT),
                lambda: feed._add_heard({'h2'}),
                lambda: feed._say(peers.Forgiven('p'))):
        add()
        turn(feed)
        assert len(writer.take()) == 1


def test_what_waits_is_bounded(feed, monkeypatch):
    monkeypatch.setattr(feeds, 'MOST_REPORTS', 2)
    monkeypatch.setattr(feeds, 'MOST_SAID', 3)
    for number in range(5):
        feed._add_report(f'h{number}', REPORT)
        feed._say(peers.Forgiven(str(number)))
    feed._add_report('h1', OTHER)
    assert feed._reports == {'h0': REPORT, 'h1': OTHER}
    assert [one.project_id for one in feed._said] == ['2', '3', '4']


def test_a_leader_that_does_not_read_is_not_flooded(feed):
    writer = connected(feed)
    writer.take()
    writer.waiting = feeds.MOST_WAITING_BYTES + 1
    feed._add_report('h1', REPORT)
    turn(feed)
    feed._add_report('h1', OTHER)
    turn(feed)
    assert writer.take() == []
    writer.waiting = feeds.MOST_WAITING_BYTES
    feed._loop.run_until_complete(asyncio.sleep(0.06))
    (told,) = writer.take()
    assert told.reports == {'h1': OTHER}
    turn(feed)
    assert writer.take() == []


def test_policies_of_followed_hosts_alone(feed):
    writer = connected(feed, 4)
    writer.take()
    feed._follow('h1', 3)
    feed._follow('h2', 0)
    assert writer.take() == [peers.Follow({'h1': 3}), peers.Follow({'h2': 0})]
    feed._hear([policy('h1', 4, 7), policy('h2', 3, 7), policy('h3', 4, 7),
                peers.Alive(70), peers.Train('h1', {'a': 1})], writer)
    assert feed.policy('h1').generation == 7
    assert feed.policy('h2') is None and feed.policy('h3') is None
    assert feed.came == ['h1'] and feed.n_hosts == 70
    assert feed.trains == [('h1', {'a': 1})]
    # Which it has after another connection is asked anew.
    feed._follow('h1', 2)
    assert feed.policy('h1') is None
    feed._hear([policy('h1', 5, 7)], writer)
    feed._leave('h1')
    assert feed.policy('h1') is None and 'h1' not in feed._followed
    assert writer.take()[-1] == peers.Leave(['h1'])
    feed._leave('h9')
    feed.came.clear()
    feed._hear([policy('h1', 5, 8)], writer)
    assert feed.came == []


@pytest.fixture
def source():
    said = []

    def note(kind):
        return lambda *args: said.append((kind, *args))

    policies = {'h1': (5, b'{"a":1}'), 'h2': (1, b'{}')}
    found = sources.Source('127.0.0.1', 0, sources.Doors(
        policy=policies.get, overtake=note('overtake'), n_hosts=lambda: 7,
        report=note('report'), heard=note('heard'), measured=note('measured'),
        trains=lambda hosts: {}, changed=note('changed'),
        forgiven=note('forgiven')), metrics.Metrics())
    found.said, found.policies = said, policies
    yield found
    found._listener.close()
    found._loop.close()


class Transport(Writer):
    def __init__(self):
        super().__init__(peers.TOLD)

    def told(self):
        return [(one.host, one.epoch, one.generation) if isinstance(
            one, peers.Policy) else one for one in self.take()]


def joined(source, epoch=1):
    peer = sources._Peer(source, source._loop)
    transport = Transport()
    peer.connection_made(transport)
    peer.data_received(peers.pack(peers.Hello('one', epoch)))
    return peer, transport


def say(peer, message):
    peer.data_received(peers.pack(message))


@pytest.mark.parametrize('leads, asked, is_welcome', [
    (None, 0, False), (3, 3, True), (3, 2, True), (3, 4, False)])
def test_who_leads_welcomes_those_that_know_no_newer_one(source, leads,
                                                         asked, is_welcome):
    source.epoch = leads
    peer, transport = joined(source, asked)
    assert transport.aborted != is_welcome
    assert source.has_had_peers == is_welcome == (peer in source._peers)
    assert transport.take() == ([peers.Welcome(3)] if is_welcome else [])
    peer.connection_lost(None)
    assert not source._peers


def test_who_says_no_hello_is_let_go(source):
    source.lead(3)
    peer = sources._Peer(source, source._loop)
    transport = Transport()
    peer.connection_made(transport)
    say(peer, peers.Changed(None))
    assert transport.aborted and source.said == []
    quiet = sources._Peer(source, source._loop)
    other = Transport()
    quiet.connection_made(other)
    quiet._must_have_said_hello()
    assert other.aborted
    peer, transport = joined(source)
    peer._must_have_said_hello()
    assert not transport.aborted
    peer.data_received(b'\xff' * 9)
    assert transport.aborted


def test_each_word_goes_to_its_door(source):
    source.lead(3)
    peer, _ = joined(source)
    say(peer, peers.Follow({'h1': 5, 'h2': 0}))
    say(peer, peers.Changed(['g']))
    say(peer, peers.Forgiven('p'))
    say(peer, peers.Reports({'h1': REPORT}, ['h2']))
    say(peer, peers.Reports({'h3': REPORT}, []))
    say(peer, peers.Measured(TRAIN))
    source.intake._take()
    assert source.said == [
        ('overtake', 'h1', 5), ('changed', ['g']), ('forgiven', 'p'),
        ('report', 'h1', REPORT), ('report', 'h3', REPORT),
        ('heard', {'h2'}), ('measured', TRAIN)]


def test_policies_go_to_those_that_follow_and_have_another(source):
    source.lead(3)
    peer, transport = joined(source)
    transport.take()
    say(peer, peers.Follow({'h1': 4, 'h2': 1, 'h9': 0}))
    assert transport.told() == [('h1', 3, 5)]
    source._published(['h1', 'h2'])
    assert transport.told() == []
    source.policies['h1'] = source.policies['h2'] = (6, b'{}')
    say(peer, peers.Leave(['h2', 'h8']))
    source._published(['h1', 'h2', 'h3'])
    assert transport.told() == [('h1', 3, 6)]
    # One that does not read gets the newest when it does.
    peer.pause_writing()
    for generation in (7, 8):
        source.policies['h1'] = (generation, b'{}')
        source._published(['h1'])
    assert transport.told() == []
    peer.resume_writing()
    assert transport.told() == [('h1', 3, 8)]
    peer.connection_lost(None)
    peer.resume_writing()
    source.policies['h1'] = (9, b'{}')
    peer.changed(['h1'])
    assert transport.told() == []


def test_many_policies_go_in_turns(source):
    source.lead(3)
    peer, transport = joined(source)
    transport.take()
    hosts = [f'x{n}' for n in range(sources.AT_ONCE + 2)]
    source.policies.update(dict.fromkeys(hosts, (2, b'{}')))
    say(peer, peers.Follow(dict.fromkeys(hosts, 0)))
    assert len(transport.take()) == sources.AT_ONCE
    source._published(hosts)
    source._loop.run_until_complete(asyncio.sleep(0))
    assert len(transport.take()) == 2
    source.policies['x0'] = (3, b'{}')
    source._published(['x0'])
    assert len(transport.take()) == 1


@pytest.mark.parametrize('add, told', [
    (lambda found: found.add_report('h1', 1), ('report', 'h1', 1)),
    (lambda found: found.add_heard(['h1']), ('heard', {'h1'})),
    (lambda found: found.add_measurement(TRAIN), ('measured', TRAIN))])
def test_what_arrives_wakes_the_intake(add, told):
    said = []
    found = intake.Intake(
        lambda *args: said.append(('report', *args)),
        lambda *args: said.append(('heard', *args)),
        lambda *args: said.append(('measured', *args)))
    found.start()
    patience.wait_for(lambda: found._there_is_some._waiters, 'it to wait')
    add(found)
    patience.wait_for(lambda: said == [told], 'what was said')
    patience.wait_for(lambda: found._there_is_some._waiters, 'it to wait')
    found.stop()
    assert not found._thread.is_alive() and said == [told]


def test_what_arrived_is_handed_over_at_the_end():
    said = []
    found = intake.Intake(lambda *args: said.append(args), said.append,
                          said.append)
    found.add_report('h1', 1)
    found.add_measurement(TRAIN)
    found.start()
    found.stop()
    assert said == [('h1', 1), TRAIN] and not found._thread.is_alive()


def test_measurements_that_wait_are_bounded(monkeypatch):
    monkeypatch.setattr(intake, 'MOST_MEASUREMENTS', 2)
    said = []
    found = intake.Intake(said.append, said.append, said.append)
    for number in range(3):
        found.add_measurement(number)
    found._take()
    assert said == [1, 2]


def test_failures_are_counted_by_outage():
    fails = types.SimpleNamespace(n=0)
    found = intake.Intake(
        lambda *args: 1 / 0, lambda hosts: None, lambda one: None,
        lambda: setattr(fails, 'n', fails.n + 1))
    found.add_report('h1', 1)
    found._take()
    assert (fails.n, found._n_lost) == (1, 1)
    found.add_heard(['h1'])
    found._take()
    assert (fails.n, found._n_lost) == (1, 0)
