# SPDX-License-Identifier: Apache-2.0

"""The door of the room: what is read again, written down and told whom."""

import threading
import time

import pytest
import sqlalchemy as sa

from tests.unit import made
from tests.unit import stored
from tests.unit.state import test_live_state as known
from virtco import exception
from virtco import metrics
from virtco import periodic
from virtco.db import migration
from virtco.db import models
from virtco.db import session as db_session
from virtco.objects import objects
from virtco.state import measured_rates
from virtco.state import schedule_input
from virtco.state import state
from virtco.table import coflow_table
from virtco.wire import check as check_wire
from virtco.wire import messages


@pytest.fixture(autouse=True)
def _short_history(monkeypatch):
    monkeypatch.setattr(measured_rates, 'DEPTH', 3)
    monkeypatch.setattr(measured_rates, 'RETENTION_S', 7200.0)


class Bench:
    def __init__(self, database=None, leads=True):
        self.database = database or stored.database()
        self.now_s, self.changes = 1000.0, []
        conf = stored.conf(scheduler={'wire_overhead_fraction': 0.0})
        counts, clock = metrics.Metrics(), lambda: self.now_s
        self.turns = turns = periodic.Turns(counts)
        self.state = state.State(conf, self.database, turns,
                                 lambda: self.objects.plane(), clock)
        self.objects = objects.Objects(conf, self.state, counts, turns, clock)
        self.state.on_change.append(self.changes.append)
        if not leads:
            self.told = []
            self.state.tell_leader = self.told.append

    def group(self, name='a', **values):
        stored.add(
            self.database, stored.group(name),
            stored.coflow(f'p-{name}', **values),
            *(stored.member(f'p-{name}', row, f'h{row}')
              for row in range(3)))

    def coflows(self):
        return set(self.state.live.statuses())

    def rows(self, model):
        with self.database.reader() as session:
            return list(session.query(model))

    def execute(self, work):
        with self.database.writer() as session:
            work(session)


@pytest.fixture
def bench():
    return Bench()


@pytest.fixture
def follower(bench):
    return Bench(bench.database, leads=False)


def test_groups_are_read_where_they_changed(bench):
    bench.group()
    bench.state.refresh()
    assert bench.coflows() == {'c-p-a'}
    bench.group('b')
    bench.group('x')
    bench.state.refresh()
    assert bench.coflows() == {'c-p-a'}
    bench.state.invalidate(['p-b'])
    assert bench.changes == [True]
    bench.state.refresh()
    assert bench.coflows() == {'c-p-a', 'c-p-b'}
    bench.state.invalidate()
    bench.state.refresh()
    assert bench.coflows() == {'c-p-a', 'c-p-b', 'c-p-x'}


@pytest.mark.parametrize('more', [0, 1])
def test_of_many_groups_all_are_read(bench, more):
    bench.state.refresh()
    bench.group()
    bench.state.invalidate(
        [f'g{i}' for i in range(state.MOST_GROUPS + more)])
    bench.state.refresh()
    assert bench.coflows() == ({'c-p-a'} if more else set())
    assert state.MOST_GROUPS == 500


@pytest.mark.parametrize('groups', [None, ['p-a']])
def test_what_could_not_be_read_is_read_later(bench, groups):
    bench.state.refresh()
    bench.group()
    bench.state.invalidate(groups)
    reader = bench.database.reader
    bench.database.reader = None
    with pytest.raises(TypeError):
        bench.state.refresh()
    bench.database.reader = reader
    bench.state.refresh()
    assert bench.coflows() == {'c-p-a'}


def test_who_counts_has_newer_progress_than_the_database(bench, follower):
    bench.group()
    for one in (bench, follower):
        one.state.refresh()
        one.state.live.intake('h1', known.report(20, coflow_id='c-p-a'), 1.0)
        one.state.invalidate()
        one.state.refresh()
    assert bench.state.live.status('c-p-a').sent_bytes == pytest.approx(20)
    # Of one that follows the leader's count.
    assert follower.state.live.status('c-p-a').sent_bytes == 0
    assert follower.told == [messages.Changed(None)]


def test_who_begins_to_lead_reads_the_progress_once(bench):
    bench.group()
    own = bench.state
    own.refresh()
    own.live.intake('h1', known.report(20, coflow_id='c-p-a'), 1.0)
    own._stale, own._is_behind = None, True  # as lead() says
    own.refresh()
    assert own.live.status('c-p-a').sent_bytes == 0
    own.live.intake('h1', known.report(25, coflow_id='c-p-a'), 2.0)
    own.invalidate()
    own.refresh()
    assert own.live.status('c-p-a').sent_bytes == pytest.approx(5)


def test_a_change_told_during_a_takeover_leaves_all_to_be_read(bench):
    bench.state.refresh()
    takeover = threading.Thread(target=bench.state.lead)

    def groups():
        takeover.start()
        until_s = time.monotonic() + 0.3
        while bench.state._stale is not None and time.monotonic() < until_s:
            time.sleep(0.001)
        yield 'x'

    bench.group()
    bench.state._note_stale(groups())
    takeover.join(60)
    assert bench.coflows() == {'c-p-a'}


def test_a_report_is_counted(bench):
    told = []
    bench.state.on_report.append(lambda *args: told.append(args))
    bench.state.report('h0', made.report())
    assert told == [('h0', made.report())] and bench.changes == [True]
    assert bench.state.live.is_known('h0')
    # Nothing new is no reason to hurry.
    bench.now_s = 1001.0
    bench.state.report('h0', made.report())
    assert bench.changes == [True, False]
    bench.now_s = 1010.0
    bench.state.heard({'h0'})
    assert bench.state.live.view('h0', 1010.0).last_report_s == 1010.0


def test_a_measurement_is_kept_and_survives_a_restart(bench):
    for rate_bps, rtts in ((4e8, {}), (5e8, {'rtt_s': 0.1,
                                             'rtt_median_s': 0.2}),
                           (6e8, {'rtt_s': 0.3}), (7e8, {})):
        bench.now_s += 1
        bench.state.measured(made.measurement(
            'a', 'b', rate_bps, sent_bytes=5, **rtts))
    assert bench.changes == [False] * 4
    bench.state.flush()
    assert {row.slot: (row.rate_bps, row.measured_at, row.rtt_s,
                       row.rtt_median_s)
            for row in bench.rows(models.Reading)} == {
        0: (7e8, 1004.0, None, None), 1: (5e8, 1002.0, 0.1, 0.2),
        2: (6e8, 1003.0, 0.3, None)}
    assert [rtt_s for _, _, rtt_s in made.readings(
        bench.state.rates, 'a', 'b')] == [
        0.2, 0.3, None]
    again = Bench(bench.database)
    again.state.load()
    assert made.readings(again.state.rates, 'a', 'b') == made.readings(
        bench.state.rates, 'a', 'b')
    assert again.state.rates.hosts()['a'].egress_bps == 7e8


def test_who_does_not_lead_any_more_writes_nothing(bench):
    def fence(session):
        raise RuntimeError('overtaken')

    bench.group()
    bench.state.refresh()
    bench.database.fence = fence
    bench.state.measured(made.measurement('a', 'b', 1e9))
    with pytest.raises(RuntimeError):
        bench.state._store_readings()
    with pytest.raises(RuntimeError):
        bench.state._estimate_pairs()
    bench.state.report('h1', known.report(50, coflow_id='c-p-a'))
    bench.state.report('h0', known.report(300, coflow_id='c-p-a'))
    assert bench.state.live.debts() == {'p': 87.5}
    with pytest.raises(RuntimeError):
        bench.state.flush()
    assert bench.rows(models.Host) == bench.rows(models.Reading) == []
    # Another time it succeeds.
    bench.database.fence = lambda session: None
    bench.state.flush()
    (coflow,) = bench.rows(models.Coflow)
    assert coflow.sent_bytes == pytest.approx(175)
    assert len(bench.rows(models.Host)) == 2
    assert [row.debt_bytes for row in bench.rows(models.Project)] == [87.5]
    bench.database.fence = fence
    with pytest.raises(RuntimeError):
        bench.state.forget_hosts({'h1'})
    assert len(bench.rows(models.Host)) == 2
    assert bench.state.live.is_known('h1')


def test_a_job_on_a_forgotten_host_holds_nothing_up(bench):
    bench.group(state='active')
    bench.state.refresh()
    live = bench.state.live
    live._progress.measured.add('c-p-a')
    assert live._groups.coflows['c-p-a'].whole.pairs.hosts
    live._progress.bound_computing(schedule_input.Hosts())
    assert not live._progress.measured


def test_what_is_counted_is_written_down(bench, monkeypatch):
    bench.group(size_bytes=100.0, tm='[[0,1,100]]')
    bench.state.refresh()
    bench.state.report('h0', known.report(180, coflow_id='c-p-a'))
    bench.state.report('h1', known.report(0, coflow_id='c-p-a'))
    bench.state.flush()
    assert {row.host for row in bench.rows(models.Host)} == {'h0', 'h1'}
    (project,) = bench.rows(models.Project)
    assert (project.project_id, project.debt_bytes) == ('p', 30.0)
    # Without news nothing is written, but the log of others' commits.
    bench.execute(lambda session: session.query(models.Host).delete())
    written = []
    monkeypatch.setattr(bench.database, 'checkpoint',
                        lambda: written.append(True))
    bench.state.flush()
    assert bench.rows(models.Host) == [] and written == [True]
    bench.state.report('h0', known.report(200, coflow_id='c-p-a'))
    bench.state.flush()
    again = Bench(bench.database)
    again.state.load()
    assert again.state.live.debts() == {'p': 50.0}
    assert again.state.live.is_known('h0')


def test_a_debt_is_not_charged_again_by_who_takes_over(bench):
    bench.group(size_bytes=100.0, tm='[[0,1,100]]')
    bench.state.refresh()
    bench.state.report('h0', known.report(180, coflow_id='c-p-a'))
    bench.state.flush()
    other = Bench(bench.database)
    other.state.lead()
    other.state.report('h0', known.report(181, coflow_id='c-p-a'))
    assert other.state.live.debts() == {'p': 31.0}


def test_what_nobody_tells_again_is_written_soon(bench, monkeypatch):
    """Counters of an epoch that is over, and of a host that senders left."""
    bench.group()
    bench.state.refresh()
    soon = []
    monkeypatch.setattr(bench.turns, 'hasten',
                        lambda name, at_s: soon.append((name, at_s)))

    def report(sent, epoch):
        bench.state.report('h1', known.report(sent, epoch, 'c-p-a'))

    bench.state.flush()
    flushed_s = bench.state._flushed_s
    for sent, epoch in ((5, 'a'), (10, 'a')):
        report(sent, epoch)
    bench.state.invalidate()
    bench.state.refresh()
    assert soon == []
    report(1, 'b')
    assert soon == [('flush', flushed_s + state.FLUSH_SOON_S)]

    def move(session):
        session.query(models.Member).filter_by(host='h1').update(
            {'host': 'h9'})

    bench.execute(move)
    bench.state.invalidate()
    bench.state.refresh()
    assert soon == [('flush', flushed_s + state.FLUSH_SOON_S)] * 2


def test_what_ended_is_told_until_it_is_written(bench):
    bench.group()
    bench.state.refresh()
    bench.state.live.finish('c-p-a', 1001.0)
    assert bench.state.live.status('c-p-a').state == 'done'
    bench.state.flush()
    assert bench.state.live.status('c-p-a') is None
    (coflow,) = bench.rows(models.Coflow)
    assert (coflow.state, coflow.ended_at) == ('done', 1001.0)


@pytest.mark.parametrize('groups', [None, ['p-a']])
def test_an_end_that_is_written_during_a_read_is_one(groups, monkeypatch,
                                                     tmp_path):
    # A file, which is read while it is written.
    database = db_session.Database(f'sqlite:///{tmp_path}/db')
    migration.upgrade(database)
    bench = Bench(database)
    bench.group()
    bench.state.refresh()
    bench.state.live.finish('c-p-a', 1001.0)
    bench.state.invalidate(groups)
    read = state.db_groups.living_coflows

    def late(session, only):
        found = read(session, only)
        bench.state.flush()
        return found

    monkeypatch.setattr(state.db_groups, 'living_coflows', late)
    bench.state.refresh()
    assert bench.coflows() == set()
    assert not any(row.is_live for row in bench.rows(models.Coflow))


def test_a_read_before_a_takeover_does_not_follow_it(monkeypatch, tmp_path):
    database = db_session.Database(f'sqlite:///{tmp_path}/db')
    migration.upgrade(database)
    bench, follower = Bench(database), Bench(database, leads=False)
    bench.group()
    bench.state.refresh()
    read, has_read, goes_on = (state.db_groups.living_coflows,
                               threading.Event(), threading.Event())

    def slow(session, only):
        found = read(session, only)
        if threading.current_thread() is loop:
            has_read.set()
            goes_on.wait(0.3)
        else:
            goes_on.set()
            loop.join()
        return found

    monkeypatch.setattr(state.db_groups, 'living_coflows', slow)
    loop = threading.Thread(target=follower.state.refresh)
    loop.start()
    has_read.wait(60)
    bench.state.live.intake('h1', known.report(20, coflow_id='c-p-a'), 1.0)
    bench.state.flush()
    follower.state.lead()
    follower.turns.stop()
    assert follower.state.live.status('c-p-a').sent_bytes == pytest.approx(20)


def test_what_was_measured_a_while_ago_is_read_if_it_was_written_late(
        bench, follower):
    """Half a minute before the newest reading that is known."""
    follower.state.measured(made.measurement('a', 'b', 1e9))
    for src, early_s in (('c', 29.9), ('d', 30.1)):
        bench.now_s = 1000.0 - early_s
        bench.state.measured(made.measurement(src, 'b', 1e9))
    bench.state.flush()
    follower.state.follow()
    assert set(follower.state.rates.age_s(1000.0)) == {('a', 'b'),
                                                       ('c', 'b')}


def test_what_is_measured_does_not_wait_for_a_database_that_is_away(bench):
    bench.database.as_leader = lambda _work: 1 / 0
    bench.state.measured(made.measurement('a', 'b', 1e9))
    assert set(bench.state.rates.age_s(1000.0)) == {('a', 'b')}


def stored_readings(bench):
    return {(row.dst, row.rate_bps) for row in bench.rows(models.Reading)}


def test_what_was_measured_without_the_database_is_stored_later(
        bench, monkeypatch):
    monkeypatch.setattr(state, 'MOST_UNSTORED', 3)
    for number in range(5):
        bench.state.measured(made.measurement('a', f'b{number}', 1e9))
    bench.state.forget_hosts({'b3'})
    assert stored_readings(bench) == set()
    bench.state.flush()
    assert stored_readings(bench) == {('b2', 1e9), ('b4', 1e9)}
    assert not bench.state._unstored


def test_many_measurements_are_stored_soon(bench, monkeypatch):
    soon = []
    monkeypatch.setattr(state, 'MOST_UNSTORED', 4)
    monkeypatch.setattr(bench.turns, 'hasten',
                        lambda name, at_s: soon.append(name))
    for number in range(3):
        assert soon == []
        bench.state.measured(made.measurement('a', f'b{number}', 1e9))
    assert soon == ['flush']
    bench.state.has_database = lambda: False
    bench.state.measured(made.measurement('a', 'b', 1e9))
    assert soon == ['flush']


def test_a_reading_of_a_host_is_not_stored_while_it_is_forgotten(
        bench, monkeypatch):
    bench.state.measured(made.measurement('a', 'b', 1e9))
    flush = threading.Thread(target=bench.state.flush)
    forget = bench.state.rates.forget

    def slow(hosts):
        flush.start()
        flush.join(0.3)
        forget(hosts)

    monkeypatch.setattr(bench.state.rates, 'forget', slow)
    bench.state.forget_hosts({'a'})
    flush.join(60)
    assert stored_readings(bench) == set()


def test_a_measurement_that_could_not_be_stored_is_stored_later(
        bench, monkeypatch):
    def fail(_work):
        raise exception.DatabaseUnavailable(why='a test')

    bench.state.measured(made.measurement('a', 'b', 1e9))
    with monkeypatch.context() as patch:
        patch.setattr(bench.database, 'as_leader', fail)
        with pytest.raises(exception.DatabaseUnavailable):
            bench.state.flush()
    bench.state.flush()
    assert stored_readings(bench) == {('b', 1e9)}


@pytest.mark.parametrize(('used_s', 'pause_s'), [
    (0.25, 2.25), (1.125, 10.0), (4.0, 10.0)])
def test_pairs_are_estimated_on_a_tenth_of_a_core(bench, monkeypatch, used_s,
                                                  pause_s):
    bench.state.measured(made.measurement('a', 'b', 1e9))
    times_s, pauses_s = [5.0, 5.0 + used_s], []
    monkeypatch.setattr(state.time, 'thread_time', lambda: times_s.pop(0))
    monkeypatch.setattr(state.time, 'sleep', pauses_s.append)
    bench.state._estimate_pairs()
    assert bench.state.rates.known.component is not None
    assert pauses_s == [pause_s]


def overstate(bench, coflow_id):
    tracked = bench.state.live._groups.coflows[coflow_id]
    tracked.period.least_s = 1.0
    bench.state.live._progress.measured.add(coflow_id)
    bench.state.live.advance(1001.0)


def test_who_overstates_gets_an_event(bench):
    bench.group(iterations=0, compute_s=9.0)
    bench.state.refresh()
    overstate(bench, 'c-p-a')
    assert bench.state.live.count_overstating() == 1
    bench.state.flush()
    (event,) = bench.rows(models.Event)
    assert (event.kind, event.project_id, event.group_id, event.group_name,
            event.created_at) == (
                'compute_overstated', 'p', 'p-a', 'a', 1000.0)
    # Once is enough.
    overstate(bench, 'c-p-a')
    bench.state.flush()
    assert len(bench.rows(models.Event)) == 1


def test_a_follower_takes_over_what_was_written(bench, follower):
    bench.group()
    bench.objects.settings.change({'order': 'fair'}, 'admin')
    follower.state.follow()
    assert follower.objects.settings.is_fair and follower.changes == [True]
    follower.state.refresh()
    assert follower.coflows() == {'c-p-a'}
    # Who leads knows more than the database.
    bench.changes.clear()
    bench.state.follow()
    assert bench.changes == []


def test_another_process_changed_something(bench, follower):
    follower.state.refresh()
    bench.group()
    bench.state.live.meet({'h0'}, 1.0)
    bench.objects.drains.drain('h0', 'disk', 'admin')
    bench.objects.settings.change({'order': 'fair'}, 'admin')
    follower.state.invalidate(['p-a'])
    follower.state.refresh()
    assert follower.coflows() == {'c-p-a'}
    # Reports wait for whoever tells this, so the rest is read later.
    follower.state.invalidate(None)
    assert not follower.objects.settings.is_fair
    assert follower.state.live.drained == frozenset()
    follower.objects._read()
    assert follower.objects.settings.is_fair
    assert follower.state.live.drained == {'h0'}


def test_a_debt_is_forgiven_everywhere(bench, follower):
    for one in (bench, follower):
        one.state.live.load_debts({'p': 85.0})
        one.objects.projects.change('p', {'debt_bytes': 0.0})
        assert one.state.live.debts() == {}
    assert messages.Forgiven('p') in follower.told


def test_old_readings_are_deleted_every_ten_minutes(bench, follower):
    bench.state.measured(made.measurement('a', 'b', 1e9))
    bench.state.flush()
    bench.now_s += 7201.0
    follower.now_s = bench.now_s
    follower.state._estimate_pairs()
    assert len(bench.rows(models.Reading)) == 1
    bench.state._estimate_pairs()
    assert bench.rows(models.Reading) == []
    assert bench.state.rates.known.component is None or (
        bench.state.rates.known.count == 0).all()
    bench.state.measured(made.measurement('a', 'b', 1e9))
    bench.state.flush()
    bench.execute(lambda session: session.query(models.Reading).update(
        {'measured_at': 1.0}))
    bench.now_s += 599.0
    bench.state._estimate_pairs()
    assert len(bench.rows(models.Reading)) == 1
    bench.now_s += 1.0
    bench.state._estimate_pairs()
    assert bench.rows(models.Reading) == []


def host_rows(bench):
    """Rows that name a host, by table and name; those of members are about
    their VMs.
    """
    found = set()
    for table in models.Base.metadata.sorted_tables:
        for column in {'host', 'src', 'dst', 'subject'} & set(
                table.columns.keys()):
            if table.name not in ('members', 'claims'):
                with bench.database.reader() as session:
                    found |= {(table.name, name) for name, in session.execute(
                        sa.select(table.c[column]))}
    return found


def invent(bench, names):
    """Each reports, is measured, found poor and drained."""
    for name in names:
        bench.state.report(name, made.replaced(
            made.report(), ports=[{'vm': f'v-{name}', 'dev': 't'}]))
    bench.state.live.keep_minors({name: coflow_table.Minors({'c': 1})
                                  for name in names})
    bench.state.flush()
    first, *rest = names
    for name in rest[:3]:
        for pair in ((name, first), (first, name)):
            bench.state.measured(made.measurement(*pair, 1e9))
    bench.state.flush()
    bench.objects.findings.conclude(set(rest[:3]), [check_wire.Finding(
        kind='host-egress', subject=name, rate_bps=1e8, expected_bps=1e9,
        evidence=[]) for name in rest[:3]])
    bench.objects.drains.drain(rest[0], 'disk', 'admin')


def host_facts(bench):
    """Sizes of what the process keeps of hosts."""
    live, known = bench.state.live, bench.state.rates._history
    live.views(bench.now_s)
    return [len(one) for one in (
        live._hosts, live._unsaved_hosts, live._sending, live._minors,
        live._addresses._vms, live._addresses.of_vm, live.drained,
        live._uplinks.capacities, live._uplinks.known,
        bench.state.rates._newest,
        bench.state.rates.hosts(), known._rings,
        known.hosts, bench.objects.findings.all())]


def test_nothing_is_left_of_forgotten_hosts(bench, follower):
    names = [f'x{row}' for row in range(5)]
    invent(bench, names)
    assert {table for table, _ in host_rows(bench)} == {
        'hosts', 'readings', 'findings', 'drains'}
    follower.state.follow()
    # The leader tells nobody: all read what is left.
    told = []
    for one in (bench, follower):
        one.state.on_forget.append(told.append)
        assert all(size for place, size in enumerate(host_facts(one))
                   if place not in (1, 2))
    bench.state.forget_hosts(set(names))
    assert host_rows(bench) == set() and not any(host_facts(bench))
    follower.state.follow()
    follower.objects._load()
    assert not any(host_facts(follower))
    assert told == [set(names)] * 2
    # Assigned meanwhile.
    bench.state.live.keep_minors({'x1': coflow_table.Minors({'c': 1})})
    bench.state.live.keep_limits({'x1': None})
    bench.state.flush()
    assert host_rows(bench) == set()


def test_the_leader_is_told_what_another_process_forgets(bench, follower):
    invent(bench, ['a', 'b'])
    follower.state.follow()
    follower.state.forget_hosts({'a', 'b'})
    assert host_rows(bench) == set() and not any(host_facts(follower))
    # And then that any group may have changed by it.
    assert follower.told[-2:] == [messages.Forgotten(['a', 'b']),
                                  messages.Changed(None)]
    bench.state.forget_hosts({'a', 'b'})
    assert not any(host_facts(bench))


def test_a_host_that_others_stay_beside(bench):
    invent(bench, ['a', 'b', 'c'])
    bench.state.forget_hosts({'b'})
    assert host_rows(bench) == {
        ('hosts', 'a'), ('hosts', 'c'), ('readings', 'a'), ('readings', 'c'),
        ('findings', 'c')}
    assert set(bench.state.rates._newest) == {('a', 'c'), ('c', 'a')}
    assert set(bench.state.rates.hosts()) == {'a', 'c'}
    history = bench.state.rates.table(0.0)
    assert set(history.hosts) == {'a', 'c'} and history.ends.shape == (2, 2)
    # Arrays grow again.
    bench.state.measured(made.measurement('b', 'd', 1e9))
    bench.state.measured(made.measurement('a', 'c', 2e9))
    assert len(bench.state.rates.table(0.0).ends) == 3


def test_what_is_quiet_for_a_week_is_forgotten(bench, follower):
    bench.group()
    bench.state.refresh()
    names = [f'x{row}' for row in range(5000)]
    for host in ('h0', 'drained', *names):
        bench.state.report(host, made.report())
    bench.state.flush()
    bench.objects.drains.drain('drained', 'disk', 'admin')
    assert len(host_rows(bench)) == 5003
    bench.now_s += 7200.0
    bench.state._estimate_pairs()
    assert len(host_rows(bench)) == 5003
    bench.now_s += 600.0
    bench.state.heard({'x7'})
    follower.now_s = bench.now_s
    follower.state.follow()
    follower.state._estimate_pairs()
    assert len(host_rows(bench)) == 5003
    bench.state._estimate_pairs()
    kept = {'h0', 'drained', 'x7'}
    assert host_rows(bench) == {('hosts', name) for name in kept} | {
        ('drains', 'drained')}
    assert bench.state.live._hosts.keys() == kept


def test_the_generation_is_read(bench):
    assert bench.state.generation() == 1


def test_hosts_that_can_be_measured():
    bench = Bench()
    bench.group()
    bench.state.refresh()
    live = bench.state.live
    for row in range(4):
        live.intake(f'h{row}', made.replaced(
            known.report(0, coflow_id='c-p-a'),
            probe={'address': f'10.0.0.{row}', 'port': 5000 + row}), 100.0)
    live.intake('h4', made.report(), 100.0)
    everybody = {f'h{row}': (f'10.0.0.{row}', 5000 + row)
                 for row in range(4)}
    assert live.measurable(109.9, 10.0, False).targets == everybody
    assert live.measurable(110.0, 10.0, False).targets == {}
    assert live.measurable(101.0, 10.0, True).targets == everybody
    live.intake('h0', made.replaced(
        known.report(50, coflow_id='c-p-a'),
        probe={'address': '10.0.0.0', 'port': 5000}), 101.0)
    assert live.measurable(101.5, 10.0, True).targets.keys() == {'h3'}
    assert live.measurable(101.5, 10.0, False).targets == everybody
    assert live.measurable(102.0, 10.0, True).targets == everybody


def test_links_in_both_directions():
    live = Bench().state.live
    for host, link in (('h0', (1e9, 2e9)), ('h1', (3e9, None)),
                       ('h2', (None, 4e9))):
        live.intake(host, made.report(link=dict(zip(
            ('egress_bps', 'ingress_bps'), link))), 1.0)
    hosts = ['h0', 'h1', 'h2', 'h9']
    assert live.nominal_links_bps(hosts) == {'h0': (1e9, 2e9),
                                             'h1': (3e9, 3e9)}
    assert live.links_bps(hosts, 1.0) == {'h0': 1e9, 'h1': 1e9, 'h2': 1e9}
    assert live.payload_rates(hosts, 1.0, True) == {
        'h0': (0.98e9, 1.96e9), 'h1': (2.94e9, 0.98e9),
        'h2': (0.98e9, 3.92e9)}
    assert live.payload_pairs({('a', 'b'): 100.0}) == {('a', 'b'): 98.0}
    assert live.is_used() and not Bench().state.live.is_used()
    assert live.view('h9', 1.0) is None
    assert [view.host for view in live.views(1.0)] == ['h0', 'h1', 'h2']
    assert live.view('h0', 1.0).capacity.ingress_bps == 2e9


def test_vms_that_nova_has_not_confirmed():
    bench = Bench()
    live = bench.state.live
    planned = known.member('g', 0, 'h5', known.states.MemberState.PLANNED)
    vacant = known.member('g', 1, None, known.states.MemberState.VACANT)
    live.load_groups([planned, vacant, known.member('g', 2, 'h0')], [])

    def ports(*rows):
        return made.report(ports=[{'vm': f'g-{row}'} for row in rows])

    live.intake('h0', ports(0, 1, 2, 7), 1.0)
    # Of one that is reserved elsewhere a port tells nothing.
    assert live.waiting('h0') == {'g-1': False}
    live.intake('h5', ports(0), 1.0)
    assert live.waiting('h5') == {'g-0': True}
    # The port of a VM that was shelved may outlive it.
    live.intake('h0', ports(0, 1, 2), 2.0)
    assert live.waiting('h0') == {}
    assert live.hosts_of_group('g') == ['h0', 'h5']
    assert live.count_members('h5') == 1


def test_a_snapshot_has_what_is_decided_by():
    bench = Bench()
    bench.group()
    bench.state.refresh()
    live = bench.state.live
    mac = '02:00:00:00:00:01'
    live.intake('h1', made.report(ports=[{'vm': 'v', 'mac': mac}]), 1.0)
    live.intake('h0', made.report(unmanaged={'macs': [mac]}), 1.0)
    live.load_debts({'p': 5.0, 'q': 7.0})
    found = live.snapshot(schedule_input.Options(
        beta=0.25, limit_senders=True), 2.0)
    assert found.now_s == 2.0 and found.size_factor == 1.25
    # Its project owes.
    assert found.coflows[0].live.served is not None
    assert live._debts.tolerance == 0.5
    assert found.senders.keys() == {'h0'}
    assert found.senders['h0'].macs == {'h1': {mac}}
    assert found.hosts.names == ('h0', 'h1', 'h2')
    assert [one.live.coflow_id for one in found.coflows] == ['c-p-a']
    other = live.snapshot(schedule_input.Options(beta=0.75), 2.0)
    assert live._debts.tolerance == 0.75 and other.senders == {}
    observed = live.snapshot(schedule_input.Options(), 2.0)
    assert observed.size_factor == 1.0 + live._uplinks.background_share()
    assert live.snapshot(
        schedule_input.Options(beta=0.0), 2.0).size_factor == 1.0
    live.forgive('p')
    (coflow,) = live.snapshot(schedule_input.Options(), 3.0).coflows
    assert coflow.live.served is None
    # A host that sends nothing any more is none of them.
    live.intake('h0', made.report(), 20.0)
    assert live.snapshot(schedule_input.Options(limit_senders=True), 20.0
                         ).senders == {}


def test_a_host_that_nova_has_is_known_at_once():
    live = Bench().state.live

    def hosts():
        return live.snapshot(schedule_input.Options(), 2.0).hosts.names

    known = hosts()
    live.meet({'h7'}, 1.0)
    assert set(hosts()) == {*known, 'h7'}


def test_minors_and_limits_are_kept():
    live = Bench().state.live
    live.meet({'h0', 'h1'}, 1.0)
    assert [one['host'] for one in live.take_unsaved().hosts] == []
    minors = schedule_input.coflow_table.Minors({'c': 3})
    live.keep_minors({'h1': minors})
    live.keep_minors({})
    unsaved = live.take_unsaved()
    assert [one['host'] for one in unsaved.hosts] == ['h1']
    assert live.snapshot(
        schedule_input.Options(), 2.0).minors == {'h1': minors}
    live.not_saved(unsaved)
    assert [one['host'] for one in live.take_unsaved().hosts] == ['h1']
    assert live.take_unsaved().hosts == []


def test_a_stored_database_error_is_told(bench):
    bench.execute(lambda session: session.execute(
        models.sa.text('DROP TABLE settings')))
    with pytest.raises(exception.DatabaseUnavailable):
        bench.objects.settings.load()


def test_who_leads_counts_from_what_was_written_and_writes_at_its_end(
        bench, follower):
    bench.group(progress='[20, 0, 0]')
    for one in (bench, follower):
        one.state.refresh()
    own = follower.state
    bench.group('b')
    bench.objects.settings.change({'order': 'fair'}, 'admin')
    own.lead()
    assert own.tell_leader is None
    assert follower.objects.settings.is_fair
    # All was read before anybody is served.
    assert follower.coflows() == {'c-p-a', 'c-p-b'}
    assert own.live.status('c-p-a').sent_bytes == 20
    own.report('h1', known.report(5, coflow_id='c-p-a'))
    follower.turns.stop()
    assert {row.id: row.sent_bytes for row in bench.rows(models.Coflow)
            } == {'c-p-a': 25, 'c-p-b': 0}
    # Who never led writes nothing.
    bench.state.report('h2', made.report())
    bench.turns.stop()
    assert [row.host for row in bench.rows(models.Host)] == ['h1']
