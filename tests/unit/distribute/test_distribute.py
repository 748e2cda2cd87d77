# SPDX-License-Identifier: Apache-2.0

"""Who is served, whose policies they get, and who hears what they say."""

import socket
import time
import types

import msgspec
import pytest

from tests.unit import made
from tests.unit import stored
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco import metrics
from virtco.db import leader
from virtco.distribute import distribute
from virtco.distribute import edge_session as session
from virtco.distribute import intake
from virtco.distribute import tickets
from virtco.wire import edge_policy
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import stream_address

POLICY = test_tcplan.policy([test_tcplan.coflow(0x10, 1e6)])
TRAIN = made.measurement('h1', 'h2', 1e9)
REPORT = made.report()
SEEN = leader.Seen(4, 7, 'x', '10.0.0.9:8792', 'secret')


class Notes:
    """Notes what it is told, behind a name of its own."""

    def __init__(self, name, said):
        self._name, self._said = name, said

    def __getattr__(self, kind):
        if kind.startswith('__'):
            raise AttributeError(kind)
        return lambda *args: self._said.append((self._name, kind, *args))


class Leads:
    """Who leads, as the test says."""

    def __init__(self, said):
        self.epoch, self.seen = None, SEEN
        self.current, self.leader = False, SEEN.address
        self.may_be_led = lambda: True
        self.peers = Notes('peers', said)

    def is_current(self):
        return self.current

    def elsewhere(self):
        return self.leader


class Server(Notes):
    port = 1234

    def __init__(self, said):
        super().__init__('server', said)
        self.alive = True

    def is_alive(self):
        return self.alive


class Prober:
    def __init__(self):
        self.on_ordered, self.keeps = [], True
        self.waiting = {'h1': {'probe_id': 'p'}, 'h2': None, 'h3': {}}

    def done(self, measurement):
        return self.keeps

    def called(self):
        return set(self.waiting)

    def next_train(self, host):
        return self.waiting[host]


@pytest.fixture
def conf():
    return stored.conf(distributor={'port': 0}, api={'auth_strategy':
                                                     'noauth'})


def make(conf, listens=False):
    said = []
    state = types.SimpleNamespace(
        report=lambda *args: said.append(('report', *args)),
        heard=lambda hosts: said.append(('heard', hosts)),
        measured=lambda found: said.append(('measured', found)),
        invalidate=lambda groups: said.append(('changed', groups)),
        forget_hosts=lambda hosts: said.append(('forgotten', hosts)),
        live=types.SimpleNamespace(
            count_members=lambda host: 2 if host == 'h4' else 0,
            is_known=lambda host: host in ('h1', 'h2', 'h3'),
            forgive=lambda project: said.append(('forgiven', project))))
    decide = types.SimpleNamespace(
        prober=Prober(), publisher=types.SimpleNamespace(
            on_publish=[], get=lambda host: POLICY if host == 'h1' else None,
            generations=lambda: {'h1': 1, 'h2': 2, 'h3': 1}))
    leads = Leads(said)
    found = distribute.Distribute(conf, state, decide, leads,
                                  metrics.Metrics(), listens)
    found.said, found.decide, found.leads = said, decide, leads
    return found


@pytest.fixture
def one(conf):
    """Without a server."""
    return make(conf)


def taken_in(one):
    """All that was said so far."""
    one._intake._take()
    return one.said


def lead(one, epoch=9):
    one.lead(epoch)
    one.leads.epoch, one.leads.current, one.leads.leader = epoch, True, None


def test_who_leads_is_told_until_all_is_read(one):
    doors = one._doors()
    assert doors.elsewhere() == '10.0.0.9:8792' and doors.epoch() == 0
    one.leads.leader = ''
    assert doors.elsewhere() == ''
    # It leads, and has not read everything yet.
    one.leads.leader = None
    assert doors.elsewhere() == ''
    lead(one)
    assert doors.elsewhere() is None and doors.epoch() == 9
    one.leads.leader = '10.0.0.8:1'
    assert doors.elsewhere() == '10.0.0.8:1'


def test_edge_modules_hear_whether_it_leads(one):
    doors = one._doors()
    assert not doors.is_led()
    lead(one)
    assert doors.is_led()


def epoch_of(numbered):
    """Of the policy of h1, which came out as it went in."""
    generation, frame = numbered
    (payload,) = frames.Reader().feed(frame)
    message = msgspec.json.decode(payload)
    assert message['type'] == 'policy'
    assert generation == message['generation'] == POLICY.generation
    assert edge_policy.EdgePolicy.from_dict(message['policy']) == POLICY
    return message['epoch']


def test_its_own_policies_are_told(one):
    doors = one._doors()
    assert epoch_of(doors.policy('h1', 0)) == 0
    lead(one)
    assert epoch_of(doors.policy('h1', 0)) == 9
    assert doors.policy('h1', POLICY.generation) is None
    assert doors.policy('h2', 0) is None and doors.n_hosts() == 3
    assert doors.trains(['h1', 'h2', 'h4']) == {'h1': {'probe_id': 'p'}}


@pytest.mark.parametrize('keeps', [True, False])
def test_measurements_are_kept_where_the_prober_says_so(one, keeps):
    one.decide.prober.keeps = keeps
    one._doors().said('h1', messages.Measured(TRAIN), b'')
    assert one.said == []
    assert taken_in(one) == ([('measured', TRAIN)] if keeps else [])


def test_few_names_of_hosts_that_are_not_known_are_kept(one):
    made_up = [made.measurement('h1', f'made-up-{number}', 1e9)
               for number in range(distribute.MOST_UNKNOWN + 1)]
    for measurement in [*made_up, made_up[0], TRAIN]:
        one._doors().said('h1', messages.Measured(measurement), b'')
        taken_in(one)
    assert one.said == [('measured', measurement) for measurement in (
        *made_up[:-1], made_up[0], TRAIN)]
    # Whoever makes up names takes none away from others.
    other = made.measurement('h2', 'made-up', 1e9)
    one._doors().said('h2', messages.Measured(other), b'')
    assert taken_in(one)[-1] == ('measured', other)


def test_measurements_of_one_host_keep_nobody_waiting(one):
    """They were as many messages as came, and pushed those of peers out."""
    doors = one._doors()
    doors.told('p1', messages.Changed(['g']))
    for _ in range(intake.MOST_OTHERS):
        doors.said('h1', messages.Measured(TRAIN), b'')
    other = made.measurement('h2', 'h3', 1e9)
    doors.said('h2', messages.Measured(other), b'')
    assert taken_in(one) == [('measured', TRAIN), ('measured', other),
                             ('changed', ['g'])]
    assert doors.spent_s('h1') > 0


def test_reports_are_taken_in(one):
    doors = one._doors()
    doors.said('h1', session.Report(REPORT, True), b'')
    for event in (session.Report(None, False), messages.Ack(1),
                  messages.Nack(1, 'no')):
        doors.said('h2', event, b'')
    doors.heard({'h2'})
    assert one.said == []
    assert taken_in(one) == [('heard', {'h2'}), ('report', 'h1', REPORT)]
    assert doors.spent_s('h1') > 0 == doors.spent_s('h1')


def test_what_peers_changed_is_read_again(one):
    doors = one._doors()
    doors.told('p1', messages.Changed(['g']))
    doors.told('p1', messages.Changed(None))
    doors.told('p1', messages.Forgiven('p'))
    doors.told('p1', messages.Forgotten(['h1']))
    assert one.said == []
    assert taken_in(one) == [('changed', ['g']), ('changed', None),
                             ('forgiven', 'p'),
                             ('forgotten', {'h1'})]


def test_a_host_with_vms_is_not_forgotten_because_a_peer_says_so(one, caplog):
    doors = one._doors()
    doors.told('p1', messages.Forgotten(['h4', 'h1']))
    doors.told('p1', messages.Forgotten(['h4']))
    assert taken_in(one) == [('forgotten', {'h1'})]
    assert caplog.messages == [
        'Peer p1 says that hosts with VMs of groups are forgotten: h4.'] * 2


def test_peers_say_whether_they_have_a_database(one):
    doors, began_s = one._doors(), time.monotonic()
    doors.peers({'p1': True, 'p2': False})
    doors.told('p1', messages.Here(False))
    doors.told('p2', messages.Here(True))
    assert [note[:-1] for note in one.said] == [
        ('peers', 'arrived', {'p1': True, 'p2': False}),
        ('peers', 'said', 'p1', False),
        ('peers', 'said', 'p2', True)]
    assert all(began_s <= note[-1] <= time.monotonic() for note in one.said)


def test_peers_ask_for_policies(one):
    one._server = Server(one.said)
    for host in ('h1', 'h2'):
        one._doors().told('p1', messages.Ask(host))
    assert taken_in(one) == [
        ('server', 'answer', 'p1',
         messages.Asked('h1', msgspec.Raw(msgspec.json.encode(POLICY)))),
        ('server', 'answer', 'p1', messages.Asked(
            'h2', msgspec.Raw(b'null')))]


def test_it_listens_if_it_may_lead(conf):
    found = make(conf, listens=True)
    assert not found.is_alive()
    found.start()
    try:
        assert found.decide.publisher.on_publish == [found._server.published]
        assert found.decide.prober.on_ordered == [
            found._server.trains_ordered]
        assert found.is_alive() and found._server.port > 0
        assert found._intake.is_alive()
        assert found.address() == f'127.0.0.1:{found._server.port}'
        # Nova is answered also where the port is taken.
        conf.set_override('port', found._server.port, 'distributor')
        other = make(conf, listens=True)
        other.start()
        assert not other.is_alive() and other.address() == ''
        assert other.decide.publisher.on_publish == []
        other.stop()
    finally:
        found.stop()
    assert not found.is_alive() and not found._intake.is_alive()


def test_without_a_server_nothing_happens(one):
    one.start()
    one.stop()
    assert one.is_alive() and one.said == [] and one.address() == ''
    assert one.decide.publisher.on_publish == []
    assert one.decide.prober.on_ordered == []


@pytest.mark.parametrize('host, api_host, address', [
    (None, '10.0.0.1', '10.0.0.1:1234'),
    ('10.0.0.2', '10.0.0.1', '10.0.0.2:1234'),
    ('fd00::1', '10.0.0.1', '[fd00::1]:1234'),
    (None, '0.0.0.0', f'{socket.gethostname()}:1234'),
    ('::', '10.0.0.1', f'{socket.gethostname()}:1234')])
def test_where_others_find_it(one, conf, host, api_host, address):
    one._server = Server(one.said)
    conf.set_override('host', host, 'distributor')
    conf.set_override('host', api_host, 'api')
    assert one.address() == address


@pytest.mark.parametrize('cert_file, is_tls', [('', False), ('/x', True)])
@pytest.mark.parametrize('host, told', [
    (None, None), ('0.0.0.0', None), ('::', None), ('10.1.2.3', '10.1.2.3')])
def test_who_leads_is_where_to_connect_to(one, conf, host, told, cert_file,
                                          is_tls):
    conf.set_override('host', host, 'distributor')
    conf.set_override('cert_file', cert_file, 'distributor')
    one._server = Server(one.said)
    lead(one)
    assert one.servers() == [stream_address.Server(told, 1234, is_tls)]


@pytest.mark.parametrize('address, host, port', [
    ('10.0.0.9:8792', '10.0.0.9', 8792), ('[fd00::9]:1', 'fd00::9', 1),
    ('node-9:8792', 'node-9', 8792)])
@pytest.mark.parametrize('cert_file, is_tls', [('', False), ('/x', True)])
def test_another_leader_is_where_to_connect_to(one, conf, address, host,
                                               port, cert_file, is_tls):
    conf.set_override('cert_file', cert_file, 'distributor')
    one._server = Server(one.said)
    one.leads.seen = leader.Seen(4, 7, 'x', address, 's')
    told = [stream_address.Server(host, port, is_tls)]
    assert one.servers() == told
    # One that leads but does not listen has no other address either.
    one._server, one.leads.epoch = None, 4
    assert one.servers() == told


@pytest.mark.parametrize('seen', [None, leader.Seen(4, 7, '', '', 's')])
def test_without_a_leader_there_is_nowhere_to_connect_to(one, seen):
    one._server, one.leads.seen = Server(one.said), seen
    assert one.servers() == []


def test_a_leader_that_does_not_beat_is_not_tried(one):
    """Its machine may be off: a connection would wait for seconds."""
    one._server, one.leads.seen = Server(one.said), SEEN
    assert len(one.servers()) == 1
    one.leads.may_be_led = lambda: False
    assert one.servers() == []


@pytest.mark.parametrize('is_tls', [False, True])
@pytest.mark.parametrize('seen', [
    None, leader.Seen(4, 7, 'x', '10.0.0.9:5', 's')])
def test_relays_share_the_edges_and_the_leader_is_last(
        one, conf, monkeypatch, is_tls, seen):
    monkeypatch.setattr(distribute.random, 'shuffle', list.reverse)
    one.leads.seen = seen
    conf.set_override('endpoints', ['a:1', 'b', '[fd00::1]:2'],
                      'distributor')
    conf.set_override('endpoints_tls', is_tls, 'distributor')
    conf.set_override('port', 77, 'distributor')
    assert one.servers() == [
        stream_address.Server(*place, is_tls)
        for place in (('fd00::1', 2), ('b', 77), ('a', 1))] + [
            stream_address.Server('10.0.0.9', 5, False)] * (seen is not None)


@pytest.mark.parametrize('text', ['', 'a:x', ':1', 'a:0', 'a/b', 'a:70000'])
def test_a_relay_without_an_address_is_refused(conf, text):
    with pytest.raises(ValueError):
        conf.set_override('endpoints', [text], 'distributor')


@pytest.mark.parametrize('auth, files, asks', [
    ('noauth', (), False), ('keystone', (), True),
    ('keystone', ('cert_file',), True), ('keystone', ('client_ca_file',),
                                         True),
    ('keystone', ('cert_file', 'client_ca_file'), False)])
def test_tickets_are_asked_for_where_nothing_else_is(conf, auth, files,
                                                     asks):
    conf.set_override('auth_strategy', auth, 'api')
    for name in files:
        conf.set_override(name, '/x', 'distributor')
    assert distribute.asks_for_tickets(conf) is asks


def test_tickets_are_of_the_leader_that_was_seen(conf):
    conf.set_override('auth_strategy', 'keystone', 'api')
    one = make(conf)
    doors = one._doors()
    key = '4 secret'
    assert doors.ticket_key() == doors.peer_key() == key
    assert one.ticket_of('h1') == tickets.of_host(key, 'h1')
    one.leads.seen = None
    assert doors.ticket_key() == doors.peer_key() == ''
    assert one.ticket_of('h1') is None


def test_where_no_tickets_are_asked_for_peers_still_prove_themselves(one):
    doors = one._doors()
    assert doors.ticket_key() is None and doors.peer_key() == '4 secret'
    assert one.ticket_of('h1') is None


def test_files_that_are_no_good_are_told(conf):
    conf.set_override('cert_file', '/proc/nowhere', 'distributor')
    with pytest.raises(exception.ConfigInvalid, match='cert_file'):
        make(conf, listens=True).start()
    make(conf).start()
