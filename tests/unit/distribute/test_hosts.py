# SPDX-License-Identifier: Apache-2.0

"""Who is connected and what each is sent, without a loop that runs."""

import resource
import socket
import types

import pytest

from tests.unit.distribute import test_server
from virtco.distribute import messages
from virtco.distribute import server
from virtco.distribute import session


class Connection:
    """Notes what it is told."""

    def __init__(self, host=None, address='10.0.0.1', sent=0):
        self.host = host
        self.address = address
        self.is_writable = True
        self.heard_s = 0.0
        self.session = types.SimpleNamespace(sent=sent, report=None)
        self.told = []

    def welcome(self, *args):
        self.told.append(('welcome', *args))

    def refuse(self, why):
        self.told.append(('refuse', why))

    def write(self, frame):
        self.told.append('frame')


class Policies:
    """Of each host the generation that the test says."""

    def __init__(self, **generations):
        self.generations = generations

    def __call__(self, host):
        found = self.generations.get(host)
        return None if found is None else types.SimpleNamespace(
            generation=found, frame=lambda: b'frame')


@pytest.fixture
def make():
    made = []

    def call(policies=Policies(), n_hosts=0, **options):
        found = test_server.Site(**options)
        made.append(found.server)
        found.left = []
        found.measured = []
        found.server._doors = server.Doors(
            epoch=lambda: 9, policy=policies,
            came=lambda *args: found.overtaken.append(args),
            left=found.left.append, n_hosts=lambda: n_hosts,
            report=None, heard=None, measured=None, trains=None)
        return found

    yield call
    for one in made:
        one._listener.close()
        one._loop.close()


def turn(site):
    """One turn of the loop: what was asked for soon is done."""
    site.server._loop.call_soon(site.server._loop.stop)
    site.server._loop.run_forever()


def join(site, *args, **values):
    found = Connection(*args, **values)
    site.server._all.add(found)
    site.server._per_address[found.address] += 1
    if found.host is not None:
        site.server.opened(found, 3)
    return found


def test_a_host_is_welcomed_and_told_its_policy(make):
    site = make(Policies(h1=5), heartbeat_s=20)
    one = join(site, 'h1')
    assert (one.told[0][:2], one.told[1:]) == (('welcome', 20.0), ['frame'])
    assert one.session.sent == 5
    assert site.overtaken == [('h1', 3)]
    assert site.counted('virtco_edge_connections') == 1
    assert site.counted('virtco_policies_sent_total') == 1
    assert site.server.epoch == 9 and not site.server.is_tls
    # Of the same generation nothing is sent again.
    site.server._changed(['h1'])
    assert one.told[2:] == []


def test_a_heartbeat_comes_while_a_policy_holds():
    conf = test_server.Site(heartbeat_s=300).server
    assert conf.heartbeat_s == 30.0  # half of a policy's minute
    conf._listener.close()


@pytest.mark.parametrize(('n_hosts', 'n_open', 'spread_s'), [
    (0, 4, 2.0), (6, 4, 3.0), (600, 4, 10.0)])
def test_in_which_time_all_come_back(make, n_hosts, n_open, spread_s):
    site = make(n_hosts=n_hosts, max_spread_s=10, resync_rate=2)
    for number in range(n_open):
        join(site, f'h{number}', address=str(number))
    assert site.server._spread_s() == spread_s


def test_a_host_has_one_connection(make):
    site = make()
    first = join(site, 'h1')
    second = join(site, 'h1', address='10.0.0.2')
    assert first.told[-1] == ('refuse', 'another connection of this host')
    # The first one's end is not the host's.
    site.server.closed(first)
    assert site.left == []
    assert site.counted('virtco_edge_connections') == 1
    site.server.closed(second)
    site.server.closed(second)
    assert site.left == ['h1']
    assert site.counted('virtco_edge_connections') == 0
    assert site.server._per_address == {} and not site.server._all


def test_addresses_are_counted(make):
    site = make()
    first, second = join(site), join(site)
    site.server.closed(first)
    assert site.server._per_address == {'10.0.0.1': 1}
    assert site.left == []
    site.server.closed(second)
    assert site.server._per_address == {}


@pytest.mark.parametrize(('limits', 'n', 'is_taken'), [
    ({}, 3, True),
    ({'max_connections': 3}, 2, True), ({'max_connections': 3}, 3, False),
    ({'max_connections_per_address': 3}, 2, True),
    ({'max_connections_per_address': 3}, 3, False)])
def test_connections_are_bounded(make, limits, n, is_taken):
    site = make(**limits)
    for _ in range(n):
        join(site)
    tasks = []
    site.server._connect = lambda sock, address: tasks.append(address)
    site.server._loop = types.SimpleNamespace(
        create_task=lambda _task: None, close=site.server._loop.close)
    with socket.socket() as sock:
        site.server._welcome(sock, '10.0.0.1')
        assert (sock.fileno() >= 0) is is_taken
        if is_taken:
            assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    assert tasks == ['10.0.0.1'] * is_taken
    assert site.server._per_address['10.0.0.1'] == n + is_taken
    assert site.counts.refused_connections.labels('limit')._value.get() == (
        not is_taken)


def test_one_that_does_not_read_gets_its_policy_when_it_does(make):
    site = make(Policies(h1=5))
    one = join(site, 'h1', sent=5)
    one.is_writable = False
    site.server._doors.policy.generations['h1'] = 6
    site.server._changed(['h1'])
    assert one.session.sent == 5
    one.is_writable = True
    site.server.resumed(one)
    assert one.session.sent == 6
    site.server.resumed(Connection())  # No hello yet.
    assert site.counted('virtco_policies_sent_total') == 1


def test_others_are_heard_while_many_are_told(make, monkeypatch):
    monkeypatch.setattr(server, 'AT_ONCE', 2)
    hosts = [f'h{number}' for number in range(5)]
    site = make(Policies(**dict.fromkeys(hosts, 7)))
    found = [join(site, host, address=host, sent=7) for host in hosts]
    turn(site)
    for one in found:
        one.session.sent = 0

    def n_told():
        return sum(one.session.sent == 7 for one in found)

    site.server._changed([*hosts, 'unknown'])
    assert n_told() == 2
    # Who changes meanwhile is sent in turn.
    site.server._changed(['h0'])
    assert n_told() == 2
    for _ in range(4):
        turn(site)
    assert n_told() == 5 and not site.server._is_sending
    # The next change is sent at once again.
    found[4].session.sent = 0
    site.server._changed(['h4'])
    assert n_told() == 5 and not site.server._is_sending


def test_what_edges_say_is_handed_on(make):
    site = make()
    came = []
    site.server._intake = types.SimpleNamespace(
        add_report=lambda *args: came.append(args),
        add_measurement=lambda one: came.append(one))
    one = join(site, 'h1')
    report = test_server.made.report()
    site.server.heard(one, session.Report(None, False))
    site.server.heard(one, session.Report(report, True))
    assert came == [('h1', report)] and site.server._heard == set()
    site.server.heard(one, session.Report(report, False))
    assert site.server._heard == {'h1'} and len(came) == 1
    measurement = test_server.made.measurement('h1', 'h2', 1e9)
    site.server.heard(one, messages.Measured(measurement))
    assert came[1:] == [measurement]
    site.server.heard(one, messages.Nack(4, 'no'))
    assert site.counted('virtco_policies_refused_total') == 1
    site.server.heard(one, messages.Ack(4))
    site.server.rests(Connection())  # No hello yet.
    assert len(came) == 2 and site.server._heard == {'h1'}
    assert site.server.last_reports() == {}
    one.session.report = report
    assert site.server.last_reports() == {'h1': report}


def test_trains_go_to_those_who_are_here(make):
    site = make()
    one = join(site, 'h1')
    site.server._hand_out({'gone': {}, 'h1': {}})
    assert one.told[1:] == ['frame']


def test_the_log_has_one_line_in_a_while(make, caplog):
    site = make()
    now = [100.0]
    site.server.clock = lambda: now[0]
    for step_s in (0, 1, 8.9, 0.1, 9.9):
        now[0] += step_s
        site.server._log('Something of %s', now[0])
    assert [record.getMessage() for record in caplog.records] == [
        'Something of 100.0', 'Something of 110.0']


def test_who_is_refused_is_counted(make, caplog):
    site = make()
    site.server.refused(Connection('h1'), 'why')
    assert site.counts.refused_connections.labels(
        'protocol')._value.get() == 1
    assert 'h1: why' in caplog.text


def test_addresses_of_both_families():
    assert server._family('::') is socket.AF_INET6
    assert server._family('0.0.0.0') is socket.AF_INET


def test_no_certificate_no_tls():
    assert server.tls_context(types.SimpleNamespace(cert_file='')) is None
    with pytest.raises(OSError):
        server.tls_context(types.SimpleNamespace(
            cert_file='/none', key_file=''))


@pytest.mark.parametrize(('limits', 'most'), [
    ((10, 5000), 1100), ((10, 1050), 1050), ((1099, 5000), 1100),
    ((1100, 5000), None), ((4000, 5000), None),
    ((10, resource.RLIM_INFINITY), 1100)])
def test_files_for_all_connections(monkeypatch, limits, most):
    told = []
    monkeypatch.setattr(resource, 'getrlimit', lambda _kind: limits)
    monkeypatch.setattr(resource, 'setrlimit',
                        lambda _kind, values: told.append(values))
    server._raise_file_limit(76)
    assert told == ([] if most is None else [(most, limits[1])])
