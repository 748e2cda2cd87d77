# SPDX-License-Identifier: Apache-2.0

"""How the rooms are wired: who leads, and what is looked at."""

import math
import threading
import time
import types

import pytest

from tests import patience
from tests.unit import made
from tests.unit import stored
from tests.unit.api import service
from virtco import app
from virtco import exception
from virtco import problems
from virtco import selftest
from virtco.db import leader
from virtco.db import migration
from virtco.follow import inventory
from virtco.follow import nova
from virtco.model import states
from virtco.wire import health


@pytest.fixture(scope='module')
def shared():
    """The App of a service, which runs no threads."""
    found = service.Service()
    yield found.rooms
    found.rooms.database.dispose()


@pytest.fixture
def rooms(shared, monkeypatch):
    """One for all tests that leave it as it was."""
    for name in ('elector', '_epoch', '_generation'):
        monkeypatch.setattr(shared, name, getattr(shared, name))
    shared._epoch = None
    return shared


def leading(rooms):
    """Let it lead, with a check of the lead that the test may spoil."""
    rooms.elector = types.SimpleNamespace(
        check=lambda session: None, is_current=lambda: True)
    rooms._epoch = 1
    return rooms


@pytest.mark.parametrize('now_s, off_s', [(9e8, 9e8), (None, 0)])
def test_a_process_begins_by_the_clock_of_the_database(monkeypatch, now_s,
                                                       off_s):
    """A server may be away, or there is none."""
    found, followed = service.Service().rooms, []

    def begun():
        raise KeyError

    monkeypatch.setattr(found.clock, 'follow', followed.append, raising=False)
    monkeypatch.setattr(found.database, 'now_s', lambda: now_s)
    monkeypatch.setattr(found.turns, 'start', begun)
    monkeypatch.setattr(app.migration, 'upgrade', lambda database: None)
    with pytest.raises(KeyError):
        found.start()
    assert followed == [off_s] * bool(off_s)

    def away():
        raise exception.DatabaseUnavailable(why='a test')

    monkeypatch.setattr(found.database, 'now_s', away)
    with pytest.raises(KeyError):
        found.start()
    found.database.dispose()


@pytest.mark.parametrize(('took_s', 'rests_s'), [
    (0.5, 4.5), (1.0, 9.0), (2.0, 10.0), (0.0, 0.0)])
def test_following_takes_a_tenth_of_a_core(rooms, monkeypatch, took_s,
                                           rests_s):
    slept, now_s = [], [50.0]
    monkeypatch.setattr(app, 'time', types.SimpleNamespace(
        thread_time=lambda: now_s[0], sleep=slept.append))

    def follow():
        now_s[0] += took_s

    monkeypatch.setattr(rooms.state, 'follow', follow)
    rooms._look()
    assert slept == [pytest.approx(rests_s)]


def test_what_no_peer_told_is_looked_for(rooms, monkeypatch):
    told = []
    monkeypatch.setattr(rooms.state, 'invalidate',
                        lambda groups=None: told.append(groups))
    leading(rooms)
    rooms._check()
    rooms._check()
    assert told == [None] and rooms._generation == rooms.state.generation()
    monkeypatch.setattr(rooms.state, 'generation', lambda: 99)
    rooms._check()
    assert told == [None, None]


def upstream(**values):
    return types.SimpleNamespace(**values)


def test_who_leads_is_told(rooms, monkeypatch):
    monkeypatch.setattr(rooms, '_upstream', upstream(
        epoch=5, is_connected=True))
    rooms.elector = types.SimpleNamespace(is_current=lambda: False)
    assert rooms.leadership() == {'epoch': 5, 'here': False, 'reached': True}
    assert not rooms.leads()
    leading(rooms)
    assert rooms.leads()
    assert rooms.leadership() == {'epoch': 1, 'here': True, 'reached': True}
    rooms.elector.is_current = lambda: False
    assert not rooms.leads() and not rooms.leadership()['reached']


def test_policies_of_this_process_or_of_the_one_that_leads(rooms,
                                                           monkeypatch):
    asked = []
    monkeypatch.setattr(rooms, '_upstream', upstream(
        n_hosts=7, policy=lambda *args: asked.append(args) or 'theirs'))
    assert rooms.n_hosts() == 7 and rooms.policy('h0') == 'theirs'
    assert asked == [('h0', app.ASK_S)]
    leading(rooms)
    assert rooms.n_hosts() == 3 and rooms.policy('nobody') is None
    found = rooms.policy('h0')
    assert (found.host, found.generation) == (
        'h0', rooms.decide.publisher.generations()['h0'])
    assert len(asked) == 1


@pytest.mark.parametrize(('one', 'other'), [
    (True, True), (True, False), (False, True)])
def test_whether_what_is_known_is_kept(rooms, monkeypatch, one, other):
    monkeypatch.setattr(rooms.turns, 'is_alive', lambda: one)
    monkeypatch.setattr(rooms._upstream, 'is_alive', lambda: other)
    assert rooms.keeps() == (one and other)
    leading(rooms)
    assert rooms.keeps() == one


@pytest.mark.parametrize('checks', [True, False])
def test_hosts_of_a_launch_may_be_checked(rooms, monkeypatch, checks):
    monkeypatch.setattr(rooms, '_conf', stored.conf(
        probe={'check_groups': 'always' if checks else 'never'}))
    told, ordered = [], []
    monkeypatch.setattr(rooms.state, 'invalidate', told.append)
    monkeypatch.setattr(rooms.decide.orders, 'planned', ordered.append)
    rooms._planned(iter('ab'))
    assert told == [['a', 'b']]
    assert ordered == ([['a', 'b']] if checks else [])


@pytest.mark.parametrize('leads', [True, False])
def test_tenants_are_told_by_the_leader(rooms, leads):
    turns = []
    leading(rooms).elector.is_current = lambda: leads
    rooms._tell_tenants(types.SimpleNamespace(turn=lambda: turns.append(1)))
    assert len(turns) == leads


def test_moves_are_looked_for_among_the_servers_of_nova(rooms, monkeypatch):
    asked = []
    monkeypatch.setattr(rooms, '_conf', stored.conf(nova={
        'auth_type': 'none', 'endpoint_override': 'http://127.0.0.1:1'}))
    monkeypatch.setattr(rooms.place, 'adviser', lambda: types.SimpleNamespace(
        turn=asked.append))
    rooms._advise()
    (one,) = asked
    assert isinstance(one, nova.Nova)


def test_a_problem_is_logged_each_time_it_comes(rooms, monkeypatch, caplog):
    monkeypatch.setattr(rooms, 'problems', ())
    wrong, odd = (health.Problem(code, f'{code} found')
                  for code in ('VC-001', 'VC-003'))
    assert problems.is_error('VC-001') and not problems.is_error('VC-003')
    for found, logged in (
            ([odd], [('WARNING', odd)]), ([odd], []),
            ([odd, wrong], [('ERROR', wrong)]), ([wrong], []),
            ([odd, wrong], [('WARNING', odd)])):
        caplog.clear()
        monkeypatch.setattr(selftest, 'repeated', lambda *_, its=found:
                            iter(its))
        rooms._test_itself()
        assert rooms.problems == tuple(found)
        assert [(one.levelname, one.getMessage())
                for one in caplog.records] == [
            (level, f'{one.code}: {one.finding}') for level, one in logged]


def test_times_that_the_documents_name():
    assert (app.FOLLOW_S, app.CHECK_S, app.TEST_S, app.ASK_S) == (
        1.0, 5.0, 15.0, 2.0)


def make(tmp_path, schedules=True, plans=True, **groups):
    conf = stored.conf(
        database={'connection': f'sqlite:///{tmp_path}/db.sqlite'},
        controller={'state_dir': str(tmp_path)},
        # Long: a busy machine takes the lead from nobody.
        leadership={'lease_s': 60.0},
        distributor={'host': '127.0.0.1', 'port': 0},
        api={'auth_strategy': 'noauth'}, **groups)
    return app.App(conf, schedules=schedules, plans=plans)


def names(turns):
    """Names of the works that come again and again."""
    return set(turns._works)


def test_a_process_does_all_the_work_unless_told():
    own = app.App(stored.conf(database={'connection': 'sqlite://'}))
    assert own.plans and own.elector._lock is not None


def test_a_process_alone_leads_until_it_stops(tmp_path):
    own = make(tmp_path, plans=False)
    assert not own.plans
    order = noted(own)
    own.start()
    server = own.distribute._server
    try:
        assert own.leads() and own.keeps()
        assert own.leadership() == {'epoch': 1, 'here': True, 'reached': True}
        assert own.decide.is_alive()
        # Without credentials of Nova nobody is told, and nothing moved.
        patience.wait_for(lambda: names(own.turns) == {
            'clock', 'check', 'flush', 'estimate pairs', 'read objects',
            'write profiles', 'reap', 'carry out orders'}, 'the works')
        # What a report tells is of use to those who follow and place.
        assert own.state.on_report[-2:] == [own.follow.reported,
                                            own.place.use]
        assert own.decide.loop.is_placing == own.place.is_busy
        assert own.decide.loop.is_answering == own.place.needs_interpreter
        # A host that is forgotten has no policy any more.
        assert own._policies.forget in own.state.on_forget
        assert not own._upstream.is_alive() and own.decide.loop.leads()
        assert own.database.fence == own.elector.check
        assert own.state.tell_leader is None
        # Edge modules find it, and all is read before they are served.
        assert own.elector.seen.epoch == 1
        with own.database.reader() as session:
            assert leader.current(session).address == (
                f'127.0.0.1:{server.port}')
        assert order == ['listens', 'policies 1', 'state', 'reads', 'decide',
                         'follow', 'distribute 1']
        assert server.is_alive()
    finally:
        own.stop()
    for part in (own.turns, server, own.elector._thread, own.decide):
        assert not part.is_alive()
    again = make(tmp_path, schedules=False)
    order = noted(again)
    try:
        again.start()
        # Who does not lead knows all before it follows.
        assert order[:3] == ['listens', 'follows', 'reads']
        assert not again.leads() and again.elector._lock is None
        assert own.elector.may_lead and not again.elector.may_lead
        assert again.elector.seen.epoch == 1
        assert again.elector._thread.is_alive()
        patience.wait_for(lambda: names(again.turns) == {
            'clock', 'follow', 'estimate pairs', 'read objects',
            'carry out orders', 'plan again', 'write the journal'},
            'the works')
        assert again.keeps() and again.distribute.is_alive()
        assert not again.decide.loop.leads()
        assert again.state.tell_leader == again._upstream.tell
        assert again.distribute._server is None
    finally:
        again.stop()
    for one in (again._upstream, again.turns, again.elector._thread):
        assert not one.is_alive()


def test_who_stops_resigns_before_it_waits_for_nova(tmp_path, monkeypatch):
    own, order = make(tmp_path, plans=False), []
    own.start()

    def noted(part, name):
        work = getattr(part, name)
        monkeypatch.setattr(part, name, lambda: order.append(
            (part, name)) or work())

    for part, name in ((own.distribute, 'stop'), (own.turns, 'end'),
                       (own.elector, 'stop'), (own.follow, 'stop'),
                       (own.turns, 'stop')):
        noted(part, name)
    own.stop()
    assert order[:5] == [
        (own.distribute, 'stop'), (own.turns, 'end'), (own.elector, 'stop'),
        (own.follow, 'stop'), (own.turns, 'stop')]


def test_who_leads_while_it_begins_to_follow_reads_last(tmp_path,
                                                        monkeypatch):
    """An older read would take counters back, whose bytes count twice."""
    own = make(tmp_path, plans=False)
    leads = threading.Thread(target=own.state.lead)
    load, loaded = own.state.load, []

    def slowly():
        if threading.current_thread() is not leads:
            leads.start()
            leads.join(0.5)
        load()
        loaded.append(threading.current_thread())

    monkeypatch.setattr(own.state, 'load', slowly)
    monkeypatch.setattr(own.elector, 'start', lambda: None)
    try:
        own.start()
        leads.join(60)
        assert loaded == [threading.current_thread(), leads]
    finally:
        own.stop()


def hang(database, monkeypatch):
    """Let nobody have an answer of the database until that is set."""
    goes_on = threading.Event()

    def wait(*_args):
        goes_on.wait(60)
        raise exception.DatabaseUnavailable(why='a test')

    for name in ('reader', 'writer', 'statements', 'retried', 'checkpoint'):
        monkeypatch.setattr(database, name, wait)
    return goes_on


def test_a_database_that_hangs_stops_neither_reports_nor_policies(
        tmp_path, monkeypatch):
    own = make(tmp_path, plans=False)
    own.start()
    goes_on = threading.Event()
    try:
        stored.add(own.database, stored.group(), stored.member(
            'p-a', 0, 'h1', state=states.MemberState.RESERVED))
        own.state.invalidate(['p-a'])
        own.state.refresh()
        assert own.state.live.count_members('h1') == 1
        goes_on = hang(own.database, monkeypatch)
        take = own.distribute._intake

        def wait_for(is_so):
            def check():
                # A look of the elector may have begun before.
                own.elector._had_s = -math.inf
                return is_so()
            patience.wait_for(check, limit_s=20)

        wait_for(lambda: not own.state.has_database())
        # Nova's word on this VM was lost: the report would be written down.
        take.add_report('h1', made.report(ports=[{'vm': 'p-a-0'}]))
        take.add_newest('h1', own.distribute._measured,
                        made.measurement('h1', 'h2', 1e9))
        wait_for(lambda: own.state.rates.age_s(0.0))
        take.add_report('h2', made.report())
        wait_for(lambda: own.decide.publisher.generations().keys()
                 == {'h1', 'h2'})
        assert own.leads()
    finally:
        goes_on.set()
        monkeypatch.undo()
        own.stop()


def test_it_tests_itself_as_soon_as_it_is_told(tmp_path, monkeypatch):
    found, are_daemons = [health.Problem('VC-003', '[api] prot')], []

    def repeated(*_):
        are_daemons.append(threading.current_thread().daemon)
        return iter(found)

    monkeypatch.setattr(selftest, 'repeated', repeated)
    own = make(tmp_path)
    assert own.problems == ()
    own.start()
    try:
        assert 'test itself' not in names(own.turns)
        own.test_itself()
        patience.wait_for(lambda: own.problems == tuple(found), 'the test')
    finally:
        own.stop()
    # One that lasts does not keep the process from ending.
    assert are_daemons == [True]


@pytest.mark.parametrize('asks_nova', [True, False])
def test_what_is_free_is_known_of_nova_or_of_its_last_question(tmp_path,
                                                               asks_nova):
    nowhere = 'http://127.0.0.1:1'
    own = make(tmp_path, nova={
        'auth_type': 'none', 'endpoint_override': nowhere,
        'placement_endpoint_override': nowhere} if asks_nova else {})
    free = own.place._free
    assert isinstance(free.__self__, inventory.Inventory) is asks_nova
    own.database.dispose()


@pytest.mark.parametrize('checks, told', [
    ('hinted', [['g']]), ('always', None), ('never', None)])
def test_hosts_of_hinted_groups_alone_are_checked_before(tmp_path, checks,
                                                         told):
    own = make(tmp_path, probe={'check_groups': checks})
    planned = []
    own.decide.orders.planned = planned.append
    if told is not None:
        own.place._preflight(['g'])
    assert own.place._preflight is None or planned == told
    assert (own.place._preflight is None) == (told is None)
    own.database.dispose()


def noted(rooms):
    """Note in which order the rooms begin."""
    order = []

    def note(part, name, words):
        do = getattr(part, name)

        def noting(*args):
            order.append(words.format(*args))
            return do(*args)

        setattr(part, name, noting)

    note(rooms.distribute, 'start', 'listens')
    note(rooms._policies, 'lead', 'policies {}')
    note(rooms.state, 'lead', 'state')
    note(rooms.state, 'load', 'reads')
    note(rooms.state, 'follow', 'follows')
    note(rooms.decide, 'lead', 'decide')
    note(rooms.follow, 'lead', 'follow')
    note(rooms.distribute, 'lead', 'distribute {}')
    return order


def test_with_credentials_of_nova_tenants_are_told_and_moves_looked_for(
        tmp_path):
    nowhere = 'http://127.0.0.1:1'
    own = make(
        tmp_path, plans=False,
        reevaluation={'interval_s': 1800.0}, nova={
            'auth_type': 'none', 'endpoint_override': nowhere,
            'placement_endpoint_override': nowhere,
            'feedback_interval_s': 3600.0})
    stops, stop = [], own._upstream.stop
    own._upstream.stop = lambda: stops.append('upstream') or stop()
    own.start()
    try:
        now_s = time.monotonic()
        assert {name: round(due_s - now_s, -2) for name, due_s in list(
            own.turns._due_s.items()) if due_s > now_s + 100} == {
                'tell tenants': 3600.0, 're-evaluate': 1800.0}
    finally:
        own.stop()
    assert stops == ['upstream', 'upstream']


def test_only_an_embedded_database_is_upgraded(tmp_path, monkeypatch):
    upgraded = []
    monkeypatch.setattr(migration, 'upgrade', upgraded.append)
    for is_sqlite in (True, False):
        own = make(tmp_path)
        monkeypatch.setattr(own.database, 'is_sqlite', is_sqlite)
        monkeypatch.setattr(own.distribute, 'start', lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            own.start()
        own.turns.stop()
        own.database.dispose()
    assert len(upgraded) == 1
