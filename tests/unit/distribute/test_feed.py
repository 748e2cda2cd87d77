# SPDX-License-Identifier: Apache-2.0

"""The leader and its peers over loopback, with a database of a test's own."""

import socket

import msgspec
from oslo_config import cfg
import pytest

from tests import patience
from tests.unit import made
from virtco import metrics
from virtco.conf import opts
from virtco.db import leader
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.distribute import feed as feeds
from virtco.distribute import peers
from virtco.distribute import source as sources

REPORT = made.report()
TRAIN = made.measurement('h1', 'h2', 1e9)


class Leader:
    """Its policies are a number each."""

    def __init__(self):
        self.policies = {'h1': 1}
        self.said = []
        note = self.said.append
        self.source = sources.Source('127.0.0.1', 0, sources.Doors(
            policy=lambda host: (
                (self.policies[host], b'{"n":%d}' % self.policies[host])
                if host in self.policies else None),
            overtake=lambda *args: note(('overtake', *args)),
            n_hosts=lambda: 7,
            report=lambda *args: note(('report', *args)),
            heard=lambda hosts: note(('heard', hosts)),
            measured=lambda found: note(('measured', found)),
            trains=lambda hosts: {host: {'probe_id': host}
                                  for host in hosts},
            changed=lambda groups: note(('changed', groups)),
            forgiven=lambda project: note(('forgiven', project))),
            metrics.Metrics())
        self.source.start()

    def publish(self, host, generation):
        self.policies[host] = generation
        self.source.published([host])


class Site:
    def __init__(self, path):
        self.conf = cfg.ConfigOpts()
        opts.register_opts(self.conf)
        self.conf([])
        self.database = db_session.Database(f'sqlite:///{path}')
        migration.upgrade(self.database)
        self.leaders, self.feeds = [], []
        self.changed, self.trains = [], []

    def lead(self):
        """Another one leads from now on."""
        found = Leader()
        self.leaders.append(found)
        with self.database.writer() as session:
            epoch = leader.take_over(
                session, leader.current(session), 'name',
                f'127.0.0.1:{found.source.port}')
        found.source.lead(epoch)
        return found

    def feed(self, epoch=0):
        found = feeds.Feed(
            self.conf, self.database, self.changed.extend,
            lambda *args: self.trains.append(args),
            lambda: {'h1': REPORT}.items())
        self.feeds.append(found)
        found.epoch = epoch
        found.start()
        return found


@pytest.fixture
def site(tmp_path):
    found = Site(tmp_path / 'db')
    yield found
    for one in found.feeds:
        one.stop()
    for one in found.leaders:
        one.source.stop()
    found.database.dispose()


def wait_policy(feed, host, generation):
    patience.wait_for(
        lambda: (found := feed.policy(host)) is not None
        and found.generation == generation, f'policy {generation}')
    return feed.policy(host)


def test_policies_come_and_everything_goes(site):
    found = site.lead()
    feed = site.feed()
    feed.follow('h1', 0)
    policy = wait_policy(feed, 'h1', 1)
    assert policy.frame()[4:] == (
        b'{"type":"policy","epoch":1,"generation":1,"policy":{"n":1}}')
    found.publish('h1', 2)
    wait_policy(feed, 'h1', 2)
    feed.say(peers.Forgiven('p'))
    feed.say(peers.Measured(TRAIN))
    feed.changed(['g1'])
    feed.heard(['h1', 'h2'])
    for said in (('report', 'h1', REPORT), ('forgiven', 'p'),
                 ('measured', TRAIN), ('changed', None),
                 ('changed', ['g1']), ('heard', {'h1', 'h2'})):
        patience.wait_for(lambda said=said: said in found.said, str(said))
    patience.wait_for(lambda: ('h1', {'probe_id': 'h1'}) in site.trains,
                      'a train')
    patience.wait_for(lambda: feed.n_hosts == 7, 'the number of hosts')
    feed.leave('h1')
    patience.wait_for(lambda: feed.policy('h1') is None, 'leaving')


def test_what_the_edge_has_is_not_sent(site):
    found = site.lead()
    feed = site.feed()
    feed.follow('h1', 1)
    patience.wait_for(lambda: ('overtake', 'h1', 1) in found.said,
                      'the generation')
    found.publish('h1', 3)
    wait_policy(feed, 'h1', 3)
    assert site.changed == ['h1']


def test_the_next_leader_is_found_and_told(site):
    first = site.lead()
    feed = site.feed()
    feed.follow('h1', 0)
    wait_policy(feed, 'h1', 1)
    second = site.lead()
    second.policies['h1'] = 9
    first.source.stop()
    assert wait_policy(feed, 'h1', 9).epoch == 2
    assert feed.epoch == 2
    patience.wait_for(lambda: ('report', 'h1', REPORT) in second.said,
                      'what is known')


def test_without_a_leader_the_database_is_read(site):
    with site.database.writer() as session:
        leader.save_policies(session, [
            models.Policy(host=host, epoch=0, generation=4, document='{}')
            for host in ('h1', 'h2')])
    feed = site.feed()
    feed.follow('h1', 3)
    feed.follow('h2', 4)
    wait_policy(feed, 'h1', 4)
    assert feed.policy('h2') is None
    with site.database.writer() as session:
        leader.save_policies(session, [models.Policy(
            host='h1', epoch=0, generation=5, document='{}')])
    wait_policy(feed, 'h1', 5)


def test_one_that_was_deposed_is_not_listened_to(site):
    """Neither by what it says nor by what it stored."""
    first = site.lead()
    feed = site.feed(epoch=5)
    feed.follow('h1', 0)
    patience.wait_for(lambda: feed.is_alive() and first.source, 'a moment')
    with site.database.writer() as session:
        leader.save_policies(session, [models.Policy(
            host='h1', epoch=1, generation=4, document='{}')])
    deadline = patience.Patience('nothing', 3)
    with pytest.raises(AssertionError):
        while feed.policy('h1') is None:
            deadline.pause()
    assert not feed.is_connected


def test_a_peer_says_hello_first(site):
    found = site.lead()
    with pytest.raises(msgspec.ValidationError):
        peers.SAID.decode(b'{"type":"nothing"}')
    with socket.create_connection(
            ('127.0.0.1', found.source.port), 60) as sock:
        sock.sendall(peers.pack(peers.Changed(None)))
        assert sock.recv(1) == b''
    assert found.said == []
