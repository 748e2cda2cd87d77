# SPDX-License-Identifier: Apache-2.0

"""The door of the room: answers in time, whatever happens."""

import concurrent.futures
import threading
import time
import types

import msgspec
import pytest
import sqlalchemy as sa

from tests import patience
from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import periodic
from virtco import startup
from virtco.db import models
from virtco.model import snapshot
from virtco.model import states
from virtco.place import deadline as deadlines
from virtco.place import place as places
from virtco.solver import planner
from virtco.wire import fields
from virtco.wire import plan

State = states.MemberState


class Room(asking.Asking):
    """The room, and whom it tells."""

    def __init__(self, inventory=None, **conf):
        # However busy the machine is, unless it is about that.
        conf.setdefault('placement', {}).setdefault('deadline_s', 60)
        super().__init__(**conf)
        self.told, self.checked = [], []
        self.starting = startup.Startup()
        self.turns = periodic.Turns(self.counts)
        self.room = places.Place(
            self.conf, stored.state(self.database, self.state),
            self.settings, self.counts, self.turns, self.starting,
            self.told.extend, inventory, self.clock,
            preflight=self.checked.extend)

    def ask(self, *args, **values):
        return self.room.answer(asking.request(*args, **values))


@pytest.fixture
def make():
    made = []

    def call(*args, is_loaded=True, **values):
        one = Room(*args, **values)
        made.append(one)
        if is_loaded:
            one.room.load_planner(False)
        return one

    yield call
    for one in made:
        one.room.stop()
        one.turns.stop()


def count(metric, *labels):
    return (metric.labels(*labels) if labels else metric)._value.get()


class Failing:
    """A placer that cannot."""

    def __init__(self, error):
        self.error = error

    def place(self, request, deadline):
        raise self.error


def test_until_the_planner_is_there(make):
    one = make(is_loaded=False)
    assert not one.room.is_alive()
    answer = one.ask()
    assert answer.status == 'neutral' and 'is starting' in answer.why
    assert count(one.counts.placement_failures, 'starting') == 1
    for question in (lambda: one.room.explain(None, None),
                     lambda: one.room.what_if(None)):
        with pytest.raises(exception.Starting):
            question()
    one.room.load_planner(False)
    assert one.room.is_alive() and one.starting.why() is None
    assert one.ask().status == 'planned'


def test_a_planner_that_does_not_work(make, monkeypatch):
    one = make(is_loaded=False)
    one.starting.what = None
    monkeypatch.setattr('virtco.solver.planner.load_libraries', lambda: 1 / 0)
    one.room.load_planner(True)
    assert not one.room.is_alive()
    assert one.ask().why == 'the planner does not work'


def test_libraries_are_loaded_once_it_is_used(make, monkeypatch):
    loaded = []
    done = threading.Semaphore(0)
    monkeypatch.setattr('virtco.solver.planner.load_libraries',
                        lambda: (loaded.append(
                            threading.current_thread().daemon),
                            done.release()))
    unused = make(is_loaded=False)
    unused.room.use()  # There is no planner yet.
    unused.room.load_planner(False)
    assert loaded == []
    unused.room.use('anything')
    assert done.acquire(timeout=10)
    unused.room.use()
    # None keeps a process that ends.
    assert loaded == [True]
    used = make(is_loaded=False)
    used.room.load_planner(True)
    used.room.use()
    used.ask()
    assert loaded == [True, False]


def test_the_first_question_loads_the_libraries(make, monkeypatch):
    done = threading.Event()
    monkeypatch.setattr('virtco.solver.planner.load_libraries', done.set)
    one = make()
    assert not done.is_set()
    one.ask()
    assert done.wait(10)


def test_placements_under_way_are_counted(make):
    one, counts = make(), []
    gauge = one.counts.placements_under_way

    class Looking:
        def place(self, request, deadline):
            (metric,) = gauge.collect()
            counts.append(metric.samples[0].value)
            assert one.room.is_busy()
            return one.placer.place(request, deadline)

    one.room._placer = Looking()
    one.ask(0)
    patience.wait_for(lambda: not one.room.is_busy())
    assert counts == [1]
    assert gauge.collect()[0].samples[0].value == 0


def test_a_system_without_threads(make, monkeypatch):
    """What found no thread is not under way, and commits nothing later."""
    one = make()
    one.ask(9, hints={'virtco:coflow': 'b'})
    patience.wait_for(lambda: not one.room.is_busy())
    one.room._pool.shutdown()
    one.room._pool = concurrent.futures.ThreadPoolExecutor(1)

    def start(_thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, 'start', start)
        assert 'new thread' in one.ask(0).why
    assert not one.room.is_busy()
    one.room._pool.submit(int).result(10)
    assert [row['name'] for row in one.rows(models.Group)] == ['b']


def test_the_pace_is_learned_from_the_work_of_each(make):
    """Not from what its thread did before."""
    one = make()

    class Working:
        def place(self, request, deadline):
            until_s = time.thread_time() + 0.03
            while time.thread_time() < until_s:
                pass
            return one.placer.place(request, deadline)

    one.room._placer = Working()
    one.ask(0)
    patience.wait_for(lambda: not one.room.is_busy())
    first_s = one.room._pace.expected_s('cpu')
    assert first_s > 0
    one.room._placer = Failing(exception.DatabaseUnavailable(why='away'))
    one.ask(1)
    patience.wait_for(lambda: not one.room.is_busy())
    assert 0 < one.room._pace.expected_s('cpu') < first_s


def test_those_who_act_are_told_of_a_plan(make):
    one = make()
    answer = one.ask(0, unplanned_passes=2)
    assert one.told == [answer.group]
    assert one.checked == []
    one.ask(1, matrix=None, hints={'virtco:preflight': 'true'})
    assert (one.told, one.checked) == ([answer.group] * 2, [answer.group])
    one.ask(5, matrix=None, hints={'virtco:coflow': 'none'})
    assert len(one.told) == 2
    # A group that is not planned anew does not change.
    assert one.ask(6, hints={'virtco:index': '9'}).group == answer.group
    assert len(one.told) == 2
    assert count(one.counts.nova_unplanned) == 2
    assert count(one.counts.placements, 'planned') == 2
    assert count(one.counts.placements, 'ignored') == 2
    assert one.counts.placement_seconds._sum.get() > 0
    assert {name: one.counts.phase_seconds.labels(name)._sum.get() > 0
            for name in ('read', 'solve', 'commit')} == {
                'read': True, 'solve': True, 'commit': True}


def test_who_checks_hosts_may_be_nobody(make):
    one = make()
    one.room._preflight = None
    assert one.ask(0, hints={'virtco:preflight': 'true'}
                   ).status == 'planned'


@pytest.mark.parametrize(('error', 'reason'), [
    (exception.DatabaseUnavailable(why='away'), 'database'),
    (exception.Conflict(what='generation', id=1), 'conflict'),
    (exception.TooLate(phase='solve', why='slow'), 'deadline'),
    (ZeroDivisionError('oops'), 'error')])
def test_what_fails_is_no_opinion(make, error, reason):
    one = make()
    one.room._placer = Failing(error)
    answer = one.ask()
    assert (answer.status, answer.host) == ('neutral', None)
    assert [found.host for found in answer.hosts] == ['h0', 'h1', 'h2']
    assert answer.slow_phase == ('solve' if reason == 'deadline' else None)
    assert count(one.counts.placement_failures, reason) == 1
    assert count(one.counts.late_placements, 'solve') == (
        reason == 'deadline')
    assert one.told == []
    # Why there is no plan can be read, though nobody waited for it.
    one.room._write()
    found = one.room.placement('vm-0')
    assert (found.why, found.group_name, found.project_id,
            found.state, found.host_now, found.at) == (
                answer.why, 'a', 'p', None, None, asking.NOW_S)
    # It goes on.
    one.room._placer = one.placer
    assert one.ask().status == 'planned'


def test_who_takes_too_long_commits_nothing(make):
    one = make(placement={'deadline_s': 0.05})
    late, over = threading.Event(), threading.Event()
    errors = []

    class Slow:
        def place(self, request, deadline):
            late.wait(10)
            try:
                deadline.claim()
            except exception.TooLate as error:
                errors.append(error)
                raise
            finally:
                over.set()

    one.room._placer = Slow()
    answer = one.ask()
    assert answer.status == 'neutral' and answer.slow_phase == 'queue'
    assert count(one.counts.late_placements, 'queue') == 1
    late.set()
    assert over.wait(10) and len(errors) == 1


def test_one_that_is_given_up_before_it_began_costs_nothing(make):
    one = make(placement={'deadline_s': 0.05})
    late, begun = threading.Event(), []

    class Slow:
        def place(self, request, deadline):
            begun.append(request.instance_uuid)
            late.wait(10)
            deadline.claim()

    one.room._placer = Slow()
    for number in range(places.WORKERS + 1):
        one.ask(number)
    late.set()
    patience.wait_for(lambda: not one.room.is_busy())
    assert len(begun) == places.WORKERS


def test_a_client_that_is_gone_ends_the_search(make, monkeypatch):
    """With nothing committed."""
    one, gone = make(), []

    def plan(problem, *, is_cancelled, **_values):
        assert not is_cancelled()
        gone.append(True)
        assert is_cancelled()
        return planner.plan(problem, is_cancelled=is_cancelled)

    monkeypatch.setattr('virtco.place.planning.planner', types.SimpleNamespace(
        plan=plan, rank_hosts=planner.rank_hosts))
    answer = one.room.answer(asking.request(0), lambda: bool(gone))
    assert (answer.status, gone) == ('neutral', [True])
    assert 'the client is gone' in answer.why
    assert one.rows(models.Group) == [] and one.told == []


def test_one_that_is_committing_is_waited_for(make):
    one = make(placement={'deadline_s': 0.05})

    class Committing:
        def place(self, request, deadline):
            deadline.claim()
            while deadline.left_s():
                pass
            return one.placer.place(request, deadlines.Deadline(9))

    one.room._placer = Committing()
    assert one.ask().status == 'planned'


def test_shadow_mode_has_no_opinion(make):
    one = make(placement={'mode': 'shadow'})
    answer = one.ask(0)
    (group,) = one.rows(models.Group)
    assert (answer.status, answer.host, answer.group) == (
        'neutral', None, group['id'])
    assert answer.why.startswith('shadow mode: planned on h')
    assert count(one.counts.shadow_placements, 'planned') == 1
    ignored = one.ask(1, hints={'virtco:index': '9'})
    assert ignored.status == 'ignored'
    assert count(one.counts.shadow_placements, 'ignored') == 0
    refused = one.ask(2, hints={'virtco:coflow': 'b',
                                'virtco:within': 'rack:required'})
    assert (refused.status, refused.refused) == ('neutral', None)
    assert refused.why.startswith('shadow mode: no valid placement')
    assert count(one.counts.shadow_placements, 'neutral') == 1


def test_only_answers_without_a_plan_or_a_refusal_are_noted(make):
    one = make()
    one.ask(0)
    one.ask(1, hints={'virtco:coflow': 'b', 'virtco:within': 'rack:required'})
    one.ask(2, hosts={'h0': (0, 0, 0)}, hints={'virtco:coflow': 'c'})
    one.room._write()
    assert sorted((event['kind'], event['group_name'])
                  for event in one.rows(models.Event)) == [
        ('neutral', 'c'), ('wish_refused', 'b')]
    # Decisions are written with them.
    assert len(one.rows(models.Decision)) == 1


def test_what_waits_is_written_at_the_end(make):
    one = make()
    one.ask(0)
    one.room.start()
    one.turns.stop()
    assert len(one.rows(models.Decision)) == 1


def test_the_end_waits_for_no_placement(make):
    """Eight are worked on, the ninth is dropped."""
    one, late = make(), threading.Event()
    *working, waiting = [one.room._pool.submit(late.wait, 10)
                         for _ in range(9)]
    one.room.stop()
    assert waiting.cancelled()
    assert not any(job.done() for job in working)
    late.set()
    with pytest.raises(RuntimeError, match='after shutdown'):
        one.room._pool.submit(int)


def test_the_answer_of_an_instance(make):
    one = make()
    answer = one.ask(0)
    found = one.room.placement('vm-0')
    assert msgspec.to_builtins(found) == msgspec.to_builtins(answer) | {
        'project_id': 'p', 'at': asking.NOW_S, 'state': 'reserved',
        'host_now': answer.host}
    with one.database.writer() as session:
        session.execute(sa.update(models.Member).values(
            instance_uuid=None))
    gone = one.room.placement('vm-0')
    assert (gone.state, gone.host_now) == (None, None)
    with pytest.raises(exception.NotFound):
        one.room.placement('nobody')


def test_what_decided(make):
    one = make()
    one.ask(0)
    placement = one.room.placement('vm-0')
    found = one.room.explain(placement, 0.2)
    assert found.why_not == '' and found.row == 0
    assert found.phases_s['solve'] >= 0
    assert 0 < found.seconds < 10
    # Some time, unless the caller says; without any nothing is found out.
    assert one.room.explain(placement, None).is_complete
    assert not one.room.explain(placement, 0.0).is_complete
    for other, why in (({'status': 'neutral'}, 'its problem was not kept'),
                       ({'group': None}, 'there is no plan'),
                       ({'row': 7}, 'its problem was not kept')):
        found = one.room.explain(
            msgspec.structs.replace(placement, **other), 0.2)
        assert (found.why_not, found.reasons, found.is_complete,
                found.seconds) == (why, [], False, 0)


def test_what_is_free_after_bookings(make):
    one = make()
    stored.add(one.database, stored.group(), *(
        stored.member('p-a', row, host, state=State.PLANNED,
                      instance_uuid=None, expires_at=asking.NOW_S + 1)
        for row, host in enumerate(('h1', 'unseen'))), stored.member(
            'p-a', 2, 'h1', placed_at=asking.NOW_S - 61))
    assert one.room.free_after_bookings({
        'h0': (4, 5, 6), 'h1': (7, 8, 9)}) == {
            'h0': (4, 5, 6), 'h1': (6, 6, 6)}


def test_one_that_came_lately_may_be_missing_in_novas_numbers(make):
    one = make()
    stored.add(one.database, stored.group(), *(
        stored.member('p-a', row, 'h1', placed_at=placed_at,
                      room_vcpus=9.0, room_memory_mb=9.0, room_disk_gb=9.0)
        for row, placed_at in enumerate((asking.NOW_S - 59,
                                         asking.NOW_S - 60))))
    # Both come off the room, of which Nova shows (1, 2, 3) or more as taken.
    assert one.room.free_after_bookings({'h1': (7, 6, 5)}) == {
        'h1': (7, 5, 3)}


RING = plan.Group(name='g', tm='[[0, 8e9], [0, 0]]',
                  flavor=fields.Resources(1, 1, 1))


def hosts(**values):
    return [plan.GivenHost(host=host, free=fields.Resources(*free))
            for host, free in values.items()]


def test_what_would_be(make):
    one = make(placement={'default_link_bps': 2e9})
    found = one.room.what_if(plan.PlanRequest(
        groups=[RING], hosts=hosts(h0=(1, 1, 1), h1=(1, 1, 1))))
    # Nothing is known of the hosts' links but what is configured.
    assert found.cct_s == pytest.approx(32)
    assert [(vm.group, vm.row) for vm in found.vms] == [
        ('g', 0), ('g', 1)]
    assert {vm.host for vm in found.vms} == {'h0', 'h1'}
    assert (found.delays, found.n_hosts) == ([], 2)
    assert stored.count(one.database, models.Group) == 0


def test_who_would_be_delayed_has_a_name(make):
    one = make()
    stored.add(one.database, stored.group('b'), stored.coflow(
        'p-b', name='shuffle'))
    one.state.loads = lambda _only: tuple(snapshot.ActiveCoflow(
        name, (('h0', size), ('h1', size)), (('h0', size), ('h1', size)),
        (('h0', 'h1', size), ('h1', 'h0', size)))
        for name, size in (('c-p-b', 90e9), ('gone', 80e9)))
    found = one.room.what_if(plan.PlanRequest(groups=[RING], hosts=hosts(
        h0=(1, 1, 1), h1=(1, 1, 1))))
    assert {late.coflow_id: (late.name, late.project_id)
            for late in found.delays} == {
        'c-p-b': ('shuffle', 'p'), 'gone': (None, None)}


@pytest.mark.parametrize('read', [('c-p-a', 'c-p-b'), ('c-p-b', 'c-p-a')])
def test_who_would_be_delayed_alike_is_ordered_by_name(make, read):
    one = make()
    for key, name in (('a', 'sort'), ('b', 'copy')):
        stored.add(one.database, stored.group(key), stored.coflow(
            f'p-{key}', name=name))
    one.state.loads = lambda _only: tuple(snapshot.ActiveCoflow(
        name, (('h0', 9e10), ('h1', 9e10)), (('h0', 9e10), ('h1', 9e10)),
        (('h0', 'h1', 9e10), ('h1', 'h0', 9e10))) for name in read)
    found = one.room.what_if(plan.PlanRequest(groups=[RING], hosts=hosts(
        h0=(1, 1, 1), h1=(1, 1, 1))))
    assert [late.name for late in found.delays] == ['copy', 'sort']


def test_what_would_be_on_the_hosts_that_are_known(make):
    question = plan.PlanRequest(groups=[RING])
    with pytest.raises(exception.Invalid, match='none is known'):
        make().room.what_if(question)
    asked = make()
    asked.ask(0)
    assert asked.room.what_if(question).n_hosts == 3
    asked.ask(1, hosts=('h1',))  # of a server that was placed already
    assert asked.room.what_if(question).n_hosts == 3
    told = make(lambda: {'h7': (2, 2, 2), 'h8': (1, 1, 1)})
    assert told.room.what_if(question).n_hosts == 2
    told.state.drained = frozenset({'h8'})
    assert [vm.host for vm in told.room.what_if(question).vms] == [
        'h7', 'h7']


def test_what_would_be_without_the_other_groups(make):
    one = make(lambda: {'h7': (1, 1, 1), 'h8': (0, 0, 0)})
    stored.add(one.database, stored.group('b', n_vms=2), *(
        stored.member('p-b', row, host, vcpus=1.0, memory_mb=1.0, disk_gb=1.0,
                      state=state)
        for row, (host, state) in enumerate((
            ('h7', State.RUNNING), ('h9', State.RESERVED)))))
    one.state.loads = lambda _only: (snapshot.ActiveCoflow(
        'c', (('h7', 1e9),), (('h8', 1e9),), (('h7', 'h8', 1e9),)),)
    question = plan.PlanRequest(groups=[RING])
    with pytest.raises(exception.PlacementInfeasible):
        one.room.what_if(question)
    found = one.room.what_if(msgspec.structs.replace(question, alone=True))
    assert [vm.host for vm in found.vms] == ['h7', 'h7']
    assert (found.delays, found.n_hosts) == ([], 2)
    one.state.drained = frozenset({'h7'})
    with pytest.raises(exception.PlacementInfeasible):
        one.room.what_if(msgspec.structs.replace(question, alone=True))


def test_the_hosts_of_the_latest_requests_are_known(make):
    """A request for several servers is one, and each without a name."""
    question = plan.PlanRequest(groups=[RING])
    one = make()
    one.ask(0, hosts=('h8', 'h9'))
    for number in range(1, 3):
        one.ask(number, hosts=('h0', 'h1'))
        assert one.room.what_if(question).n_hosts == 2
    for number in range(3):
        one.ask(3 + number, hosts=(f'h{2 + number}',), reservation_id=None,
                hints={'virtco:coflow': f'b{number}'})
        assert one.room.what_if(question).n_hosts == 3 + number


def test_moves_that_would_pay_on_the_hosts_that_are_known(make):
    assert make(lambda: {'h7': (2, 2, 2)}).room.adviser().look(0.1) == []
    with pytest.raises(exception.Invalid):
        make().room.adviser().look()


def test_groups_that_were_planned_again_are_told(make, monkeypatch):
    monkeypatch.setattr(places, 'REPLAN_S', 0.01)
    one = make(is_loaded=False)
    one.room.start()
    one.turns.start()
    one.room.load_planner(False)
    monkeypatch.setattr(one.room._placer.replanning, 'turn', lambda: ['g'])
    patience.wait_for(lambda: 'g' in one.told)
