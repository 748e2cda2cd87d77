# SPDX-License-Identifier: Apache-2.0

"""The door of follow: what Nova says, what expires, what a port shows."""

import contextlib
import sys
import types

import prometheus_client
import pytest

from tests.unit import stored
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco.db import groups as db_groups
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.follow import auditor
from virtco.follow import follow
from virtco.follow import listener
from virtco.follow import notifications
from virtco.model import booking
from virtco.model import states

STATE = states.MemberState
CREATED = 'instance.create.end'


class Bench:
    """A group of a VM that runs and one that was given a host."""

    def __init__(self):
        self.database, self.now_s = stored.database(), 1000.0
        stored.add(
            self.database, stored.group(), stored.coflow('p-a'),
            stored.member('p-a', 0, 'h0', placed_at=500.0),
            stored.member('p-a', 1, 'h1', state=STATE.RESERVED,
                          planned_host='h1', expires_at=2000.0,
                          placed_at=990.0, room_vcpus=9.0),
            stored.member('p-a', 2, None, instance_uuid=None,
                          state=STATE.VACANT),
            stored.group('b'), stored.member(
                'p-b', 0, 'h0', placed_at=None, room_vcpus=20.0,
                room_memory_mb=30.0, room_disk_gb=40.0))
        self.changed, self.waiting = [], {}
        self.counts = metrics.Metrics()
        self.follow = follow.Follow(
            stored.conf(controller={'keep_retired_s': 3600}),
            stored.state(self.database, types.SimpleNamespace(
                waiting=lambda host: self.waiting.get(host, {})),
                invalidate=lambda ids: self.changed.append(list(ids))),
            self.counts, periodic.Turns(self.counts), lambda: self.now_s)

    def notified(self, kind, uuid, host=None, at_s=5, **data):
        return self.follow.notified(kind, {'nova_object.data': {
            'uuid': uuid, 'host': host} | data},
            f'2026-11-22 10:00:{at_s:02d}')

    def member(self, group_id='p-a', row=0):
        with self.database.reader() as session:
            return session.get(models.Member, (group_id, row))

    def group(self, group_id='p-a'):
        with self.database.reader() as session:
            return session.get(models.Group, group_id)

    def events(self):
        with self.database.reader() as session:
            return [(row.kind, row.detail, row.group_name, row.project_id,
                     row.instance_uuid, row.created_at)
                    for row in session.query(models.Event)]

    def generation(self):
        with self.database.reader() as session:
            return db_groups.generation(session)

    def metric(self):
        return prometheus_client.generate_latest(
            self.counts.registry).decode()


@pytest.fixture
def bench():
    return Bench()


def test_a_vm_is_built_where_it_was_planned(bench):
    assert bench.notified(CREATED, 'p-a-1', 'h1')
    found = bench.member(row=1)
    assert (found.state, found.host, found.expires_at, found.placed_at) == (
        STATE.RUNNING, 'h1', None, 1000.0)
    # What the host had for it was written with its plan.
    assert found.room_vcpus == 9.0
    assert bench.changed == [['p-a']] and bench.events() == []
    assert f'event_type="{CREATED}"' in bench.metric()
    generation = bench.generation()
    assert generation == 2
    # Once more, and of another VM: nothing.
    assert not bench.notified(CREATED, 'p-a-1', 'h1')
    assert not bench.notified(CREATED, 'stranger', 'h1')
    assert not bench.notified('instance.pause.end', 'p-a-1', 'h2')
    assert bench.generation() == generation and len(bench.changed) == 1


def test_a_vm_is_built_elsewhere_or_moves(bench):
    bench.notified(CREATED, 'p-a-1', 'h2')
    bench.now_s = 1001.0
    bench.notified('instance.live_migration_post_dest.end', 'p-a-0', 'h3')
    assert bench.events() == [
        ('other_host', 'planned for h1, built on h2', 'a', 'p', 'p-a-1',
         1000.0),
        ('moved', 'from h0 to h3', 'a', 'p', 'p-a-0', 1001.0)]
    assert bench.member(row=1).room_vcpus is None
    assert bench.member(row=1).host == 'h2'
    # A settled one leaves so much less room where it was.
    left = bench.member('p-b')
    assert (left.room_vcpus, left.room_memory_mb, left.room_disk_gb) == (
        19.0, 28.0, 37.0)


def test_a_vm_that_was_never_there_leaves_no_room_behind(bench):
    stored.add(bench.database, stored.group('c'), stored.member(
        'p-c', 0, 'h1', placed_at=100.0, room_vcpus=20.0,
        room_memory_mb=30.0, room_disk_gb=40.0))
    bench.notified(CREATED, 'p-a-1', 'h2')
    assert bench.member('p-c').room_vcpus == 20.0


def test_a_flavor_is_taken_over(bench):
    flavor = {'flavor': {'vcpus': 4, 'memory_mb': 5, 'root_gb': 6,
                         'ephemeral_gb': 7}}
    assert bench.notified('instance.resize_finish.end', 'p-a-0', 'h0',
                          **flavor)
    found = bench.member()
    assert (found.vcpus, found.memory_mb, found.disk_gb) == (4, 5, 13)
    assert found.placed_at == 1000.0
    assert not bench.notified('instance.resize_finish.end', 'p-a-0', 'h0',
                              **flavor)


def test_a_time_that_is_later_is_kept_though_nothing_changed(bench):
    bench.notified(CREATED, 'p-a-1', 'h1', at_s=5)
    assert not bench.notified(CREATED, 'p-a-1', 'h1', at_s=9)
    assert not bench.notified(CREATED, 'p-a-1', 'h2', at_s=8)
    assert bench.member(row=1).host == 'h1'
    assert bench.notified(CREATED, 'p-a-1', 'h2', at_s=9)


def test_a_shelved_vm_keeps_its_row(bench):
    assert bench.notified('instance.shelve_offload.end', 'p-a-0')
    found = bench.member()
    assert (found.instance_uuid, found.state, found.host) == (
        'p-a-0', STATE.VACANT, None)
    assert bench.member('p-b').room_vcpus == 19.0
    assert not bench.notified('instance.shelve_offload.end', 'p-a-0',
                              at_s=9)
    assert not bench.notified('instance.shelve_offload.end', 'p-a-0',
                              at_s=3)
    assert bench.events() == []
    assert bench.notified('instance.shelve_offload.end', 'p-a-1')
    assert bench.member(row=1).expires_at is None


def test_a_group_without_vms_is_over(bench):
    bench.follow.release('p-a-0')
    assert bench.member().instance_uuid is None
    assert bench.group().retired_at is None
    bench.follow.apply(notifications.Gone('p-a-1', 'No valid host'))
    assert bench.group().retired_at == 1000.0
    assert bench.events() == [('build_failed', 'No valid host', 'a', 'p',
                               'p-a-1', 1000.0)]
    assert bench.changed == [['p-a'], ['p-a']]
    with pytest.raises(exception.NotFound):
        bench.follow.release('p-a-0')
    assert bench.group('p-b').retired_at is None


def test_reservations_expire(bench):
    bench.now_s = 2000.0
    bench.follow.reap()
    assert bench.changed == [] and bench.generation() == 1
    bench.now_s = 2000.1
    bench.follow.reap()
    found = bench.member(row=1)
    assert (found.state, found.host, found.expires_at,
            found.instance_uuid) == (STATE.VACANT, None, None, 'p-a-1')
    assert bench.events() == [('expired', 'not built on h1 in time', 'a',
                               'p', 'p-a-1', 2000.1)]
    assert bench.changed == [['p-a']] and bench.generation() == 2
    assert bench.group().retired_at is None
    assert 'expired_total 1.0' in bench.metric()
    # Of what was only planned there is nothing to tell, and a group that
    # has no VM is over.
    stored.add(bench.database, stored.group('c'), stored.member(
        'p-c', 0, 'h1', instance_uuid=None, state=STATE.PLANNED,
        expires_at=2000.0))
    bench.follow.reap()
    assert len(bench.events()) == 1
    assert bench.group('p-c').retired_at == 2000.1


def test_who_does_not_lead_any_more_reaps_nothing(bench):
    def fence(session):
        raise exception.Deposed(epoch=1)

    bench.now_s, bench.database.fence = 3000.0, fence
    with pytest.raises(exception.Deposed):
        bench.follow.reap()
    assert bench.member(row=1).host == 'h1'


def test_a_port_shows_where_a_vm_runs(bench):
    bench.waiting = {'h1': {'p-a-1': True, 'stranger': False}}
    bench.follow.reported('h0', None)
    assert bench.changed == []
    bench.follow.reported('h1', None)
    assert bench.member(row=1).state == STATE.RUNNING
    assert bench.changed == [['p-a']]


def test_a_database_that_is_away_stops_no_report(bench):
    bench.waiting = {'h1': {'p-a-1': True}}
    with bench.database.engine.begin() as connection:
        connection.execute(models.sa.text('DROP TABLE members'))
    bench.follow.reported('h1', None)
    assert bench.changed == []


def test_reports_do_not_wait_for_a_database_that_is_away(bench, monkeypatch):
    bench.waiting = {'h1': {'p-a-1': True}}
    monkeypatch.setattr(bench.follow._state, 'has_database', lambda: False)
    bench.follow.reported('h1', None)
    assert bench.member(row=1).state != STATE.RUNNING
    monkeypatch.undo()
    bench.follow.reported('h1', None)
    assert bench.member(row=1).state == STATE.RUNNING


def test_reports_wait_for_a_database_that_hangs_only_until_that_is_known(
        bench, monkeypatch):
    bench.waiting = {'h1': {f'p-a-{row}': True for row in range(50)}}
    asked = []

    def apply(change):
        asked.append(change.instance_uuid)
        raise exception.DatabaseUnavailable(why='no answer within 10 s')

    monkeypatch.setattr(bench.follow, 'apply', apply)
    monkeypatch.setattr(bench.follow._state, 'has_database',
                        lambda: not asked)
    bench.follow.reported('h1', None)
    assert asked == ['p-a-0']


def test_each_turn_drops_what_is_over(bench):
    bench.now_s = 2001.0
    bench.follow._turn()
    assert bench.member(row=1).host is None and bench.changed == [['p-a']]


def test_what_ended_long_ago_is_purged_now_and_then(bench):
    def retire(at_s):
        with bench.database.writer() as session:
            session.get(models.Group, 'p-b').retired_at = at_s

    retire(1000.0 - 3600.0)
    bench.follow._turn()
    assert bench.group('p-b') is not None
    retire(1000.0 - 3600.1)
    for _ in range(99):
        bench.follow._turn()
    assert bench.group('p-b') is not None
    bench.follow._turn()
    assert bench.group('p-b') is None
    assert (follow.PURGE_EVERY, follow.REAP_S) == (100, 5.0)


class Failing:
    """A room to which nothing can be told, or a wrong thing."""

    def __init__(self, error=None):
        self.error, self.told = error, []

    def notified(self, *args):
        self.told.append(args)
        if self.error is not None:
            raise self.error


@pytest.mark.parametrize('method', ['info', 'error'])
@pytest.mark.parametrize(('error', 'answer'), [
    (None, 'handled'), (ValueError('no'), 'handled'),
    (exception.DatabaseUnavailable(why='away'), 'requeue')])
def test_a_notification_comes_again_while_the_database_is_away(
        monkeypatch, method, error, answer):
    pauses_s = []
    monkeypatch.setattr(listener.time, 'sleep', pauses_s.append)
    follow = Failing(error)
    endpoint = listener.Endpoint(follow, 'handled', 'requeue')
    assert getattr(endpoint, method)(
        None, 'nova-compute:h1', CREATED, {'a': 1},
        {'timestamp': 't'}) == answer
    assert follow.told == [(CREATED, {'a': 1}, 't', 'nova-compute:h1')]
    assert pauses_s == [0.5] * (answer == 'requeue')


def test_every_message_bus_is_listened_to_once():
    def urls(**options):
        return listener.urls_of(stored.conf(notifications=options))

    assert urls() == []
    assert listener.start(stored.conf(), Failing()) is None
    assert urls(transport_url=[
        'kombu+memory:///a', 'kombu+memory:///b', 'kombu+memory:///a', '']
        ) == ['kombu+memory:///a', 'kombu+memory:///b']


class Bus:
    def __init__(self):
        self.told = []

    def start(self):
        self.told.append('start')

    def stop(self):
        self.told.append('stop')


def test_each_bus_is_heard_with_threads(monkeypatch):
    monkeypatch.setitem(sys.modules, 'eventlet', None)
    from oslo_service import backend
    # Nova's tests in the same process may have chosen already.
    with contextlib.suppress(Exception):
        backend.init_backend(backend.BackendType.THREADING)
    import oslo_messaging
    monkeypatch.delitem(sys.modules, 'eventlet')
    chosen, asked, buses = [], [], [Bus(), Bus()]

    def choose(kind):
        # None: an import ends as if it were not installed.
        chosen.append((kind, sys.modules['eventlet']))
        raise ValueError('no such backend')

    def make(transport, targets, endpoints, **options):
        asked.append((transport, targets, [one.__class__ for one in endpoints],
                      options))
        return buses[len(asked) - 1]

    monkeypatch.setattr(backend, 'init_backend', choose)
    monkeypatch.setattr(oslo_messaging, 'get_notification_transport',
                        lambda conf, url: url)
    monkeypatch.setattr(oslo_messaging, 'get_notification_listener', make)
    found = listener.start(stored.conf(notifications={
        'transport_url': ['rabbit://a', 'rabbit://b'], 'topics': ['t', 'u'],
        'exchange': 'nova', 'pool': 'virtco'}), Failing())
    assert chosen == [(backend.BackendType.THREADING, None)]
    assert asked == [
        (url, [oslo_messaging.Target(topic=topic, exchange='nova')
               for topic in 'tu'], [listener.Endpoint],
         {'executor': 'threading', 'allow_requeue': True, 'pool': 'virtco'})
        for url in ('rabbit://a', 'rabbit://b')]
    found.close()
    assert [bus.told for bus in buses] == [['start', 'stop']] * 2


def test_a_bus_that_cannot_be_is_named_without_its_password(monkeypatch):
    monkeypatch.setitem(sys.modules, 'eventlet', None)
    with pytest.raises(exception.Invalid) as caught:
        listener.start(stored.conf(notifications={
            'transport_url': ['carrier-pigeon://nova:secret@h']}), Failing())
    assert '[notifications] transport_url: expected the URL of a ' in str(
        caught.value)
    assert str(caught.value).endswith(', got carrier-pigeon.')
    assert 'secret' not in str(caught.value)


def test_who_leads_compares_with_nova_until_it_stops(bench, tmp_path):
    """No group has a server, so nothing is asked for."""
    conf = stored.conf(nova={'auth_type': 'none',
                             'endpoint_override': 'http://127.0.0.1:1'})
    database = db_session.Database(f'sqlite:///{tmp_path}/db')
    migration.upgrade(database)
    found = follow.Follow(conf, stored.state(database), bench.counts,
                          periodic.Turns(bench.counts), lambda: 1000.0)
    found.lead()
    assert found._auditor.is_alive()
    found.stop()
    assert not found._auditor.is_alive()
    database.dispose()


@pytest.mark.parametrize(('placed_s', 'room'), [
    (1000.0 - booking.SETTLED_S, 19.0),
    (1000.1 - booking.SETTLED_S, 20.0),
    # Clocks of processes differ, and may be set.
    (999.9 + booking.SETTLED_S, 20.0), (1000.0 + booking.SETTLED_S, 19.0),
    (None, 19.0)])
def test_a_vm_that_settled_leaves_less_room(bench, placed_s, room):
    """What others read of the host counted it."""
    with bench.database.writer() as session:
        session.get(models.Member, ('p-a', 0)).placed_at = placed_s
    assert bench.notified('instance.live_migration_post_dest.end', 'p-a-0',
                          'h3')
    assert bench.member('p-b').room_vcpus == room


def test_a_group_is_over_once(bench):
    for uuid in ('p-a-0', 'p-a-1'):
        bench.follow.release(uuid)
    stored.add(bench.database, stored.member(
        'p-a', 3, 'h1', instance_uuid=None, state=STATE.PLANNED,
        expires_at=1500.0))
    bench.now_s = 2000.0
    bench.follow.reap()
    assert bench.member(row=3).host is None
    assert bench.group().retired_at == 1000.0


def test_an_event_has_a_bound(bench):
    bench.follow.apply(notifications.Gone('p-a-1', 'x' * 4001))
    assert [detail for _kind, detail, *_ in bench.events()] == ['x' * 4000]


def test_a_flavor_of_which_a_part_changed_is_taken_over(bench):
    assert bench.notified(
        'instance.resize_finish.end', 'p-a-0', 'h0',
        flavor={'vcpus': 1, 'memory_mb': 2, 'root_gb': 6, 'ephemeral_gb': 0})
    assert bench.member().disk_gb == 6


def test_without_credentials_nothing_is_compared_with_nova(bench):
    assert auditor.start(stored.conf(), bench.database, lambda change: True,
                         bench.counts) is None
    bench.follow.lead()
    bench.follow.stop()
