# SPDX-License-Identifier: Apache-2.0

"""The event loop over loopback, with policies that a test makes up."""

import dataclasses
import socket
import time

from oslo_config import cfg
import pytest

from tests import patience
from tests.unit import made
from virtco import metrics
from virtco.conf import opts
from virtco.distribute import codec
from virtco.distribute import frames
from virtco.distribute import server
from virtco.wire import edge_policy

LARGE = edge_policy.EdgePolicy(
    'h1', 1, 60.0, 1e9, 1e9, 1e7, flows=tuple(
        edge_policy.FlowEntry('c' * 36, 'v' * 36, '10.0.0.1', '10.0.0.2', 2,
                              port) for port in range(1, 20_001)))


class Site:
    """A distributor, and what it asks and tells."""

    def __init__(self, **options):
        conf = cfg.ConfigOpts()
        opts.register_opts(conf)
        conf([])
        conf.set_override('port', 0, 'distributor')
        for name, value in options.items():
            conf.set_override(name, value, 'distributor')
        self.policy = LARGE
        self.reports = []
        self.overtaken = []
        self.heard = set()
        self.counts = metrics.Metrics()
        self.server = server.Distributor(conf, server.Doors(
            epoch=lambda: 0, left=lambda host: None,
            policy=lambda host: (codec.Numbered(0, self.policy)
                                 if host == 'h1' else None),
            came=lambda *args: self.overtaken.append(args),
            n_hosts=lambda: 5000,
            report=lambda *args: self.reports.append(args),
            heard=self.heard.update,
            measured=lambda measurement: None,
            trains=lambda hosts: {host: {'probe_id': host}
                                  for host in hosts}), self.counts)

    def publish(self, generation):
        self.policy = dataclasses.replace(LARGE, generation=generation)
        self.server.published(['h1'])

    def counted(self, name):
        return self.counts.registry.get_sample_value(name)


@pytest.fixture
def start():
    started = []

    def make(**options):
        started.append(Site(**options))
        started[-1].server.start()
        return started[-1]

    yield make
    for one in started:
        one.server.stop()


def connect(site, host='h1', generation=0, received_bytes=None):
    sock = socket.socket()
    if received_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
    sock.settimeout(60)
    sock.connect(('127.0.0.1', site.server.port))
    sock.sendall(frames.pack('hello', version=2, host=host,
                             generation=generation))
    return sock


def messages(sock):
    reader = frames.Reader(1 << 28)
    while data := sock.recv(1 << 20):
        yield from map(frames.unpack, reader.feed(data))


def next_of(found, kind):
    return next(message for message in found if message['type'] == kind)


def test_it_sends_what_the_edge_does_not_have(start):
    site = start()
    with connect(site, generation=0) as sock:
        found = messages(sock)
        assert next(found) == {
            'type': 'welcome', 'epoch': 0, 'heartbeat_s': 30.0,
            'spread_s': 5.0, 'most_bytes': frames.MOST_BYTES}
        message = next_of(found, 'policy')
        assert edge_policy.EdgePolicy.from_dict(message['policy']) == LARGE
    with connect(site, generation=1) as sock:
        found = messages(sock)
        next_of(found, 'welcome')
        site.publish(2)
        assert next_of(found, 'policy')['generation'] == 2
    assert site.overtaken == [('h1', 0), ('h1', 1)]


def test_who_does_not_read_gets_the_newest_only(start):
    site = start()
    with connect(site, received_bytes=4096) as sock:
        patience.wait_for(lambda: site.counted('virtco_policies_sent_total'),
                          'the first policy')
        for generation in range(2, 30):
            site.publish(generation)
        seen = []
        for message in messages(sock):
            if message['type'] == 'policy':
                seen.append(message['generation'])
                if seen[-1] == 29:
                    break
        assert seen == sorted(set(seen))
        # What was begun is finished, and what came meanwhile is left out.
        assert len(seen) < 10


def test_reports_are_handed_on_and_trains_handed_out(start):
    site = start()
    report = made.report(applied_generation=3)
    with connect(site, 'h2') as sock:
        sock.sendall(frames.pack('report', report=report))
        patience.wait_for(lambda: site.reports, 'the report')
        sock.sendall(frames.pack('delta', set={'uplink_sent_bytes': 7}))
        patience.wait_for(lambda: len(site.reports) > 1, 'the delta')
        sock.sendall(frames.pack('heartbeat'))
        patience.wait_for(lambda: site.heard == {'h2'}, 'the heartbeat')
        sock.sendall(frames.pack('delta', rows={'coflows': {
            'gone': [['nothing']]}}))
        found = messages(sock)
        next_of(found, 'resend')
        assert next_of(found, 'probe')['train'] == {'probe_id': 'h2'}
    assert site.reports == [
        ('h2', report), ('h2', made.replaced(report, uplink_sent_bytes=7))]


@pytest.mark.parametrize('parts', [
    [frames.pack('heartbeat')], [frames.pack('heartbeat', spelling='other')],
    [frames.pack('heartbeat')[:9], frames.pack('heartbeat')[9:]],
    [frames.pack('heartbeat') + frames.pack('heartbeat')[:9],
     frames.pack('heartbeat')[9:]]])
def test_a_heartbeat_is_answered_however_it_comes(start, parts):
    site = start()
    with connect(site, 'h2') as sock:
        sock.sendall(frames.pack('report', report=made.report()))
        patience.wait_for(lambda: site.reports, 'the report')
        for part in parts:
            sock.sendall(part)
            time.sleep(0.01)  # else the parts may come as one
        assert next_of(messages(sock), 'alive')
        patience.wait_for(lambda: site.heard == {'h2'}, 'the heartbeat')


def test_a_heartbeat_without_a_report_asks_for_one(start):
    with connect(start(), 'h2') as sock:
        sock.sendall(frames.pack('heartbeat'))
        assert next_of(messages(sock), 'resend')


def test_who_is_silent_is_let_go(start):
    site = start(heartbeat_s=0.2)
    with connect(site, 'h2') as sock:
        assert 'silent' in next_of(messages(sock), 'refused')['why']
    patience.wait_for(lambda: site.counted('virtco_edge_connections') == 0,
                      'the end')


def test_a_policy_comes_out_as_it_went_in():
    (payload,) = frames.Reader().feed(codec.policy_frame(3, LARGE))
    message = frames.unpack(payload)
    assert (message['epoch'], message['generation']) == (3, 1)
    assert edge_policy.EdgePolicy.from_dict(message['policy']) == LARGE
