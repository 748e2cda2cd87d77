# SPDX-License-Identifier: Apache-2.0

"""Whose policies edge modules get, and who hears what they say."""

import types

from oslo_config import cfg
import pytest

from tests.unit import made
from tests.unit.edge import test_tcplan
from virtco import exception
from virtco import metrics
from virtco.conf import opts
from virtco.distribute import codec
from virtco.distribute import room
from virtco.distribute import tickets

POLICY = test_tcplan.policy([test_tcplan.coflow(0x10, 1e6)])
TRAIN = made.measurement('h1', 'h2', 1e9)
REPORT = made.report()


class Feed:
    """The leader's policies, for those that this process does not lead."""

    epoch, n_hosts = 4, 70

    def __init__(self, said):
        self.follow = lambda *args: said.append(('follow', *args))
        self.leave = lambda *args: said.append(('leave', *args))

    def policy(self, host):
        return 'of the leader', host


class Server:
    is_tls, port = False, 1234

    def __init__(self, said):
        self.said = said
        self.published = lambda hosts: said.append(('published', hosts))
        self.hand_out = lambda *args: said.append(('hand out', *args))
        self.published_all = lambda: said.append(('published all',))
        self.trains_ordered = lambda: said.append(('trains',))
        self.alive = True

    def last_reports(self):
        return {'h1': REPORT}

    def is_alive(self):
        return self.alive

    def stop(self):
        self.said.append(('stopped',))


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
    found = cfg.ConfigOpts()
    opts.register_opts(found)
    found([])
    found.set_override('port', 0, 'distributor')
    found.set_override('auth_strategy', 'noauth', 'api')
    return found


@pytest.fixture
def one(conf):
    said = []
    know = types.SimpleNamespace(
        report=lambda *args: said.append(('report', *args)),
        heard=lambda hosts: said.append(('heard', hosts)),
        measured=lambda found: said.append(('measured', found)))
    decide = types.SimpleNamespace(
        on_publish=[], prober=Prober(), loaded=False,
        policy_of=lambda host: POLICY if host == 'h1' else None,
        overtake=lambda *args: said.append(('overtake', *args)),
        generations=lambda: {'h1': 1, 'h2': 2, 'h3': 1})
    decide.checks = types.SimpleNamespace(takes=lambda one: decide.loaded)
    found = room.Distribute(conf, know, decide, Feed(said),
                            metrics.Metrics())
    found.said, found.decide = said, decide
    return found


def test_until_it_leads_the_leaders_policies_are_told(one):
    doors = one._doors()
    assert doors.epoch() == 4 and doors.n_hosts() == 70
    assert doors.policy('h1') == ('of the leader', 'h1')
    doors.came('h1', 3)
    doors.left('h1')
    doors.measured(TRAIN)
    assert doors.trains(['h1']) == {}
    assert one.said == [('follow', 'h1', 3), ('leave', 'h1'),
                        ('measured', TRAIN)]


def test_while_it_leads_its_own_are(one):
    one.lead(9)
    doors = one._doors()
    assert doors.epoch() == 9 and doors.n_hosts() == 3
    assert doors.policy('h1') == codec.Numbered(9, POLICY)
    assert doors.policy('h2') is None
    doors.came('h1', 3)
    doors.left('h1')
    assert doors.trains(['h1', 'h2', 'h4']) == {'h1': {'probe_id': 'p'}}
    assert one.said == [('overtake', 'h1', 3)]


@pytest.mark.parametrize('keeps, loaded, is_kept', [
    (True, False, True), (True, True, False), (False, False, False),
    (False, True, False)])
def test_measurements_on_a_loaded_link_are_not_kept(one, keeps, loaded,
                                                    is_kept):
    one.lead(9)
    one.decide.prober.keeps, one.decide.loaded = keeps, loaded
    one.measured(TRAIN)
    assert one.said == ([('measured', TRAIN)] if is_kept else [])


def test_who_begins_to_lead_hears_and_tells_everything(one):
    one._server = Server(one.said)
    one.lead(9)
    assert one.said == [('report', 'h1', REPORT), ('published all',)]
    (ordered,) = one.decide.prober.on_ordered
    ordered()
    one.policies_came(['h1'])
    one.train_came('h1', {})
    one.stop()
    assert one.said[2:] == [('trains',), ('published', ['h1']),
                            ('hand out', 'h1', {}), ('stopped',)]
    assert one.last_reports() == {'h1': REPORT}
    assert one.is_alive()
    one._server.alive = False
    assert not one.is_alive()


def test_without_a_distributor_nothing_happens(one):
    one.policies_came(['h1'])
    one.train_came('h1', {})
    one.stop()
    assert one.last_reports() == {} and one.is_alive()
    assert one.document() is None and one.said == []


@pytest.mark.parametrize('host, told', [
    (None, None), ('0.0.0.0', None), ('::', None), ('10.1.2.3', '10.1.2.3')])
def test_where_to_connect_to(one, conf, host, told):
    conf.set_override('host', host, 'distributor')
    one._server = Server([])
    assert one.document() == {'version': 2, 'host': told, 'port': 1234,
                              'tls': False}


def test_distributors_apart_are_named(one, conf):
    conf.set_override('endpoints', ['a:1', 'b'], 'distributor')
    conf.set_override('endpoints_tls', True, 'distributor')
    conf.set_override('port', 77, 'distributor')
    assert one.document() == {'version': 2, 'endpoints': ['a:1', 'b'],
                              'host': None, 'port': 77, 'tls': True}


def opened(one, *args):
    return room.open_server(one._conf, one._doors(), metrics.Metrics(),
                            *args)


def test_a_distributor_opens(one):
    one.start()
    try:
        (published,) = one.decide.on_publish
        assert published == one._server.published
        assert one.is_alive() and one._server.port > 0
        taken = one._server.port
        one._conf.set_override('port', taken, 'distributor')
        assert opened(one) is None
    finally:
        one.stop()
    assert not one.is_alive()


@pytest.mark.parametrize('auth', ['keystone', 'noauth'])
def test_tickets_are_asked_for_where_tokens_are(one, conf, auth):
    assert one.ticket_of('h1') is None
    conf.set_override('auth_strategy', auth, 'api')
    one.start()
    ticket = one.ticket_of('h1')
    one.stop()
    assert (ticket is None) == (auth == 'noauth')
    if ticket:
        assert one._tickets.is_of('h1', ticket)
        assert not one._tickets.is_of('h2', ticket)
        assert not one._tickets.is_of('h1', '\xe9')
        assert not tickets.Tickets().is_of('h1', ticket)


@pytest.mark.parametrize('auth, files, opens', [
    ('keystone', (), False), ('keystone', ('cert_file',), False),
    ('keystone', ('client_ca_file',), False), ('noauth', (), True)])
def test_who_cannot_be_told_apart_is_not_served(one, conf, auth, files,
                                                opens):
    conf.set_override('auth_strategy', auth, 'api')
    for name in files:
        conf.set_override(name, '/proc/nowhere', 'distributor')
    found = opened(one)
    assert (found is not None) == opens
    if found is not None:
        found._listener.close()
    conf.set_override('enabled', False, 'distributor')
    assert opened(one) is None


def test_files_that_are_no_good_are_told(one, conf):
    conf.set_override('cert_file', '/proc/nowhere', 'distributor')
    with pytest.raises(exception.ConfigInvalid, match='cert_file'):
        opened(one)
