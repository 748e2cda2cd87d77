# SPDX-License-Identifier: Apache-2.0

"""Which groups wait for each other, and what they get."""

import concurrent.futures
import threading

from oslo_config import cfg
import pytest

from tests import patience
from virtco import exception
from virtco import metrics
from virtco.conf import placement_options as placement
from virtco.model import cluster
from virtco.model import coflow as coflow_model
from virtco.model import snapshot
from virtco.place import deadline as deadlines
from virtco.place import window

GB = 1e9


class Asker:
    """A controller's window, and threads that ask.

    :param full: groups that one round is for.
    """

    def __init__(self, full, objective='online', window_ms=100.0,
                 budget_s=0.25, pace=None):
        conf = cfg.ConfigOpts()
        conf.register_opts(placement.OPTS, group='placement')
        conf([])
        conf.set_override('window_ms', window_ms, 'placement')
        conf.set_override('budget_s', budget_s, 'placement')
        self.metrics = metrics.Metrics()
        self.window = window.Window(
            conf, {'objective': objective, 'planner': 'virtco'},
            self.metrics, pace or deadlines.Pace(), self._wait)
        self.full = full
        self.held_s = []
        self.spent_s = []
        self.is_full = False

    def _wait(self, is_full, limit_s):
        """However busy the machine is, all are there."""
        self.held_s.append(limit_s)
        patience.wait_for(lambda: is_full.is_set() or len(
            self.window._open.entries) == self.full)
        self.is_full = True

    def ask(self, *named_problems, limit_s=60.0):
        """Ask at the same time; what each gets."""
        def answer(name, problem, limit_s=limit_s, is_gone=lambda: False):
            deadline = deadlines.Deadline(limit_s, is_gone=is_gone)
            try:
                return self.window.plan(('p', name), problem, deadline)
            except exception.Conflict as error:
                return error
            finally:
                self.spent_s.append((deadline.spent_s(), deadline.spent_s()))
                self.window.leave(deadline)

        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            return [job.result() for job in [
                pool.submit(answer, *one) for one in named_problems]]

    def outcomes(self):
        return {name: count for name in (
            'together', 'alone', 'late', 'refused', 'failed')
            if (count := self.metrics.registry.get_sample_value(
                'virtco_window_groups_total', {'outcome': name}))}


def group(size_bytes, *free):
    hosts = tuple(cluster.Host(name, (float(slots),), 8e9, 8e9)
                  for name, slots in zip('abcd', free))
    return snapshot.PlacementProblem(
        hosts, tuple(cluster.Vm(f'v{i}', (1.0,)) for i in range(2)),
        (coflow_model.Coflow.from_flows('c', 2, [(0, 1, size_bytes)]),))


def test_groups_that_ask_together_share_the_room():
    asker = Asker(2)
    small, large = asker.ask(('small', group(GB, 2, 1, 1)),
                             ('large', group(9 * GB, 2, 1, 1)))
    assert large.plan.hosts == ('a', 'a')
    assert sorted(small.plan.hosts) == ['b', 'c']
    assert asker.outcomes() == {'together': 2}
    assert asker.metrics.registry.get_sample_value(
        'virtco_plans_total', {'relaxation': small.plan.relaxed}) == 2
    assert asker.held_s == [0.1]


def test_who_was_held_is_planning_afterwards():
    """Who plans for all, and who waits for that."""
    asker = Asker(2)
    asker.ask(('small', group(GB, 2, 1, 1)), ('large', group(9 * GB, 2, 1, 1)))
    assert len(asker.spent_s) == 2
    for before_s, after_s in asker.spent_s:
        assert after_s['hold'] == before_s['hold'] > 0
        assert after_s['solve'] > before_s['solve'] > 0


def test_nobody_else_came():
    asker = Asker(1)
    assert asker.ask(('one', group(GB, 2))) == [None]
    assert asker.outcomes() == {'alone': 1}


def test_a_round_is_full_with_eight_groups(monkeypatch):
    sizes = []

    def plan(problems, **kwargs):
        sizes.append(len(problems))
        raise exception.PlacementInfeasible(what='it', why='')

    monkeypatch.setattr(window.together, 'plan', plan)
    # The wait ends when the round is full.
    asker = Asker(9)
    assert asker.ask(*((f'g{i}', group(GB, 2)) for i in range(16))) == (
        [None] * 16)
    assert sizes == [8, 8] and len(asker.held_s) == 2


@pytest.mark.parametrize('options, limit_s', [
    ({'window_ms': 0}, 60.0), ({'objective': 'isolated'}, 60.0),
    # 0.1 s to wait, 0.25 to plan, half of that kept for planning alone.
    ({}, 0.45)])
def test_nothing_is_held_where_it_is_not_to_be(options, limit_s):
    asker = Asker(1, **options)
    assert asker.ask(('one', group(GB, 2)), limit_s=limit_s) == [None]
    assert asker.held_s == [] and asker.outcomes() == {}


@pytest.mark.parametrize('phase', ['rank', 'commit'])
@pytest.mark.parametrize(('took_s', 'is_held'), [(0.0, True), (1.5, False)])
def test_who_has_to_rank_and_to_commit_has_less_time(phase, took_s, is_held):
    now_s = [100.0]
    deadline = deadlines.Deadline(9.0, lambda: now_s[0])
    deadline.enter(phase)
    now_s[0] += took_s
    pace = deadlines.Pace(lambda: now_s[0])
    pace.learn(deadline, 0.0)
    asker = Asker(1, pace=pace)
    asker.ask(('one', group(GB, 2)), limit_s=1.5)
    assert bool(asker.held_s) is is_held


def test_a_joint_plan_goes_on_while_somebody_waits(monkeypatch):
    gone, ended = set(), []

    def plan(problems, *, plan_one, **kwargs):
        for name in ('nobody', 'one', 'other'):
            gone.add(name)
            ended.append(plan_one.keywords['is_cancelled']())
        raise exception.PlacementInfeasible(what='it', why='')

    monkeypatch.setattr(window.together, 'plan', plan)
    Asker(2).ask(*((name, group(GB, 4), 60.0, lambda name=name: name in gone)
                   for name in ('one', 'other')))
    assert ended == [False, False, True]


def test_who_is_gone_takes_the_others_no_time(monkeypatch):
    given = []

    def plan(problems, *, budget_s, **kwargs):
        given.append((len(problems), budget_s))
        raise exception.PlacementInfeasible(what='it', why='')

    monkeypatch.setattr(window.together, 'plan', plan)
    asked = [('gone', group(GB, 4), 60.0, lambda: asker.is_full)] + [
        (name, group(GB, 4)) for name in ('one', 'other')]
    asker = Asker(3)
    asker.ask(*asked)
    assert given == [(2, 0.5)]
    asker = Asker(2)
    asker.ask(*asked[:2])
    assert len(given) == 1 and asker.outcomes() == {'alone': 2}


def test_who_was_held_once_is_not_held_again():
    asker = Asker(1)
    deadline = deadlines.Deadline(60.0)
    for _ in range(2):
        assert asker.window.plan(('p', 'one'), group(GB, 2),
                                 deadline) is None
    assert len(asker.held_s) == 1


def test_groups_that_do_not_fit_together_are_planned_alone():
    asker = Asker(2)
    assert asker.ask(('one', group(GB, 2)), ('other', group(GB, 2))) == [
        None, None]
    assert asker.outcomes() == {'refused': 2}


def test_a_planner_that_fails_leaves_each_alone(monkeypatch):
    def fail(*args, **kwargs):
        raise ZeroDivisionError

    monkeypatch.setattr(window.together, 'plan', fail)
    asker = Asker(2)
    assert asker.ask(('one', group(GB, 4)), ('other', group(GB, 4))) == [
        None, None]
    assert asker.outcomes() == {'failed': 2}


def test_who_cannot_wait_any_more_goes_alone(monkeypatch):
    """The thread that plans is stuck; the other's time to plan is kept."""
    stuck = threading.Event()

    def plan(*args, **kwargs):
        stuck.wait(60)
        raise exception.PlacementInfeasible(what='it', why='')

    monkeypatch.setattr(window.together, 'plan', plan)
    asker = Asker(2, budget_s=0.4)
    left_s = []

    def follow():
        patience.wait_for(lambda: asker.window._open)
        deadline = deadlines.Deadline(1.0)
        part = asker.window.plan(('p', 'late'), group(GB, 4), deadline)
        left_s.append(deadline.left_s())
        stuck.set()
        return part

    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        late = pool.submit(follow)
        asker.ask(('one', group(GB, 4)))
        assert late.result() is None
    assert left_s[0] <= 0.2
    assert asker.outcomes()['late'] == 1


def test_the_second_of_a_new_group_waits_for_the_first():
    asker = Asker(1)
    first, second, third = map(deadlines.Deadline, (60.0, 1.0, 60.0))
    problem = group(GB, 2)
    assert asker.window.plan(('p', 'same'), problem, first) is None
    with pytest.raises(exception.Conflict):
        asker.window.plan(('p', 'same'), problem, second)
    # As long as planning it alone leaves time.
    assert 0 < second.left_s() <= 0.5 * 0.25
    entry = asker.window._waiting['p', 'same']
    asker.window.leave(first)
    assert entry.gone.is_set()
    assert asker.window.plan(('p', 'same'), problem, third) is None
    # It begins a round of its own.
    assert asker.outcomes() == {'alone': 2} and len(asker.held_s) == 2


def test_who_has_least_time_says_what_planning_may_take(monkeypatch):
    given = []

    def plan(problems, *, budget_s, **kwargs):
        given.append(budget_s)
        raise exception.PlacementInfeasible(what='it', why='')

    monkeypatch.setattr(window.together, 'plan', plan)
    asker = Asker(2, budget_s=8.0)
    for limit_s in (200.0, 20.0):
        asker.ask(('one', group(GB, 4)), ('other', group(GB, 4)),
                  limit_s=limit_s)
    asker.ask(('one', group(GB, 4), 200.0), ('other', group(GB, 4), 20.0))
    assert given[0] == 16.0
    assert all(8.0 < budget_s <= 0.9 * (20.0 - 4.0)
               for budget_s in given[1:]) and len(given) == 3
