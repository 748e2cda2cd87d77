# SPDX-License-Identifier: Apache-2.0

"""From what is known of a group and the cloud to a plan for it."""

import math
import threading

import pytest
import sqlalchemy as sa

from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import hints as hint_reader
from virtco.db import models
from virtco.model import cluster
from virtco.model import snapshot
from virtco.model import states
from virtco.place import deadline as deadlines
from virtco.place import planning
from virtco.place import problem as problem_builder
from virtco.solver import planner

State = states.MemberState
ONE = asking.FLAVOR
FULL = (0, 4096, 90)


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Asking(asking.Asking):
    """Plans without answers."""

    def __init__(self, pairs=None, **conf):
        super().__init__(**conf)
        self.planning = planning.Planning(
            self.conf, self.settings, self.counts, stored.state(
                self.database, self.state,
                **({} if pairs is None else {'rates': pairs})),
            self.pace, self.clock)

    def look(self, *args, **values):
        request = asking.request(*args, **values)
        limits = self.reader.limits
        hint = hint_reader.outline(request.hints, {}, limits).read(limits)
        with self.database.reader() as session:
            return request, self.reader.view(session, request, hint)

    def solve(self, *args, deadline=None, **values):
        request, self.view = self.look(*args, **values)
        return self.planning.solution(request, self.view,
                                      deadline or deadlines.Deadline(60))


@pytest.fixture
def ask():
    return Asking()


def test_nobody_waits_while_a_problem_is_built(ask, monkeypatch):
    build, waited = problem_builder.build, []

    def look(*args):
        other = threading.Thread(target=ask.state.links_bps, args=((), 0.0))
        other.start()
        other.join(5)
        waited.append(other.is_alive())
        return build(*args)

    monkeypatch.setattr(problem_builder, 'build', look)
    assert ask.solve() is not None
    assert waited == [False]


def change(ask, row, **values):
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).where(
            models.Member.row_index == row).values(**values))


def held(ask, *hosts, vcpus=2.0):
    """Another group plans to use all of these hosts."""
    stored.add(ask.database, stored.group('other', n_vms=len(hosts)), *(
        stored.member('p-other', row, host, state=State.PLANNED,
                      instance_uuid=None, vcpus=vcpus,
                      expires_at=asking.NOW_S + 9)
        for row, host in enumerate(hosts)))


def test_a_new_group_is_planned_as_a_whole(ask):
    problem, rows, plan = ask.solve(1)
    assert rows == (0, 1, 2)
    assert [vm.pinned for vm in problem.vms] == [None] * 3
    assert [host.name for host in problem.hosts] == ['h0', 'h1', 'h2']
    assert {host.free for host in problem.hosts} == {asking.FREE}
    assert plan.hosts[0] == plan.hosts[1] != plan.hosts[2]
    assert ask.counts.plans.labels(plan.relaxed)._value.get() == 1


def test_where_not_all_fit_the_one_is_planned(ask):
    _problem, rows, plan = ask.solve(1, hosts={'h0': ONE, 'h1': FULL})
    assert (rows, plan.hosts) == ((1,), ('h0',))
    assert [kind for kind, _detail in ask.view.notes] == ['infeasible']
    assert ask.solve(1, hosts={'h1': FULL}) is None
    assert [kind for kind, _detail in ask.view.notes] == ['infeasible'] * 2
    # A wish that is refused is refused for the whole group.
    ask.state.payload_tree = lambda now_s: cluster.Tree(
        (cluster.Subtree('r0', 1e9, 1e9, None, 'rack'),), {'h0': 'r0'})
    assert ask.solve(1, hosts={'h0': ONE, 'h1': FULL}, hints={
        'virtco:within': 'rack:required'}) is None
    assert ask.view.refused.kwargs['fitting'] == 1
    assert [kind for kind, _detail in ask.view.notes] == ['wish_refused']


def test_a_wish_that_is_only_preferred_is_noted(ask):
    assert ask.solve(1, hints={'virtco:within': 'rack'}) is not None
    assert [kind for kind, _detail in ask.view.notes] == ['wish_unmet']


@pytest.mark.parametrize(('is_new', 'hints', 'waits'), [
    (True, {}, True), (True, {'virtco:within': 'rack'}, False),
    (True, {'virtco:spread': 'rack'}, True), (False, {}, False)])
def test_only_new_groups_that_share_no_switch_are_planned_with_others(
        monkeypatch, ask, is_new, hints, waits):
    asked = []
    monkeypatch.setattr(ask.planning.window, 'plan',
                        lambda key, *_: asked.append(key))
    if not is_new:
        ask.place(0)
    assert ask.solve(1, hints=hints) is not None
    assert asked == [('p', 'a')] * waits


def test_what_others_hold_is_theirs(ask):
    held(ask, 'h0', 'h1', 'h2')
    assert ask.solve(0) is None
    held_alone = ask.view.notes
    assert {kind for kind, _detail in held_alone} == {'infeasible'}


def test_planned_siblings_stay_where_one_is_only_advised(ask):
    first = ask.place(0)
    change(ask, 0, state=State.RUNNING, expires_at=None)
    problem, rows, _plan = ask.solve(0, matrix=None)
    assert [vm.pinned for vm in problem.vms] == [
        None, first.rows['1'], first.rows['2']]
    # For one that is to be placed they are planned anew.
    problem, rows, _plan = ask.solve(1, matrix=None)
    assert [vm.pinned for vm in problem.vms] == [first.host, None, None]


def test_only_what_is_left_is_planned_for(ask):
    first = ask.place(0)
    stored.add(ask.database, stored.coflow(
        first.group, id='done', position=-1, state=states.CoflowState.DONE))
    (own,) = [one for one in ask.rows(models.Coflow) if one['id'] != 'done']
    ask.state.remaining_fraction = {own['id']: 0.25, 'done': 9.0}.get
    problem, _rows, _plan = ask.solve(1, matrix=None)
    assert [coflow.size_bytes for coflow in problem.coflows] == [
        pytest.approx(0.25 * 123e9)]


def test_running_vms_are_in_novas_numbers(ask):
    """A small VM runs; those to come have the flavor of the request."""
    first = ask.place(0)
    change(ask, 0, state=State.RUNNING, vcpus=0.5, memory_mb=7.0)
    change(ask, 1, vcpus=0.5)
    problem, rows, _plan = ask.solve(1, matrix=None, flavor=(2, 600, 4))
    running, own, other = problem.vms
    assert (running.demand, running.pinned, running.counted) == (
        (0.5, 7.0, 3.0), first.host, True)
    assert own.demand == other.demand == (2, 600, 4)


@pytest.mark.parametrize('hosts, rows', [
    (['h0', 'h1', 'h2', 'h3'], (0, 1, 2)), (['h0', 'h1', 'h2'], (0,))])
def test_a_launch_keeps_to_its_server_group(ask, hosts, rows):
    """Alone where its batch does not fit."""
    problem, planned, plan = ask.solve(0, hosts=hosts, server_group={
        'policy': 'anti-affinity', 'members': [], 'hosts': ['h0', 'h9']})
    assert planned == rows and len(problem.vms) == len(rows)
    assert problem.server_groups == (snapshot.ServerGroup(
        snapshot.GroupPolicy.ANTI_AFFINITY, rows, frozenset({'h0', 'h9'})),)
    assert 'h0' not in plan.hosts
    assert {coflow.n_vms for coflow in problem.coflows} == {len(rows)}


def test_caps_are_those_of_flavors(ask):
    """Of a VM that has a host its own flavor, of others that of the request.
    """
    limits = {'egress_cap_bps': 8e5, 'ingress_cap_bps': 4e5}
    problem, _rows, plan = ask.solve(1, **limits)
    assert {(vm.egress_cap_bps, vm.ingress_cap_bps)
            for vm in problem.vms} == {(8e5, 4e5)}
    free = ask.solve(1)[2]
    assert plan.bottleneck.startswith('cap of member ')
    assert plan.hosts == free.hosts and plan.cct_s > free.cct_s
    ask.place(0, **limits, egress_burst_bytes=7.0)
    problem, _rows, _plan = ask.solve(1, matrix=None, egress_cap_bps=9e5,
                                      ingress_burst_bytes=6.0)
    assert [(vm.egress_cap_bps, vm.ingress_cap_bps, vm.egress_burst_bytes,
             vm.ingress_burst_bytes) for vm in problem.vms] == [
        (8e5, 4e5, 7, 0), *[(9e5, math.inf, 0, 6)] * 2]


def test_limits_of_ports_count_beside_caps(ask):
    ask.place(0, egress_cap_bps=8e5)
    change(ask, 0, egress_limit_bps=9e5, ingress_limit_bps=4e5)
    problem, _rows, _plan = ask.solve(1, matrix=None, ingress_cap_bps=7e5)
    assert [(vm.egress_cap_bps, vm.ingress_cap_bps)
            for vm in problem.vms] == [(8e5, 4e5), *[(math.inf, 7e5)] * 2]


def test_drained_hosts_are_left_to_whom_they_were_promised(ask):
    first = ask.place(0)
    ask.state.drained = frozenset(('h0', 'h1', 'h2'))
    problem, _rows, _plan = ask.solve(1, matrix=None)
    assert {host.name for host in problem.hosts} == set(first.rows.values())
    change(ask, 1, state=State.RUNNING, instance_uuid='x')
    change(ask, 2, state=State.RUNNING, instance_uuid='y')
    change(ask, 0, host=None, state=State.VACANT, instance_uuid=None)
    # No more: those that run there are no promise.
    assert ask.solve(0, matrix=None) is None
    assert ask.view.notes[0] == ('infeasible',
                                 'every candidate host is drained')


class Pairs:
    def __init__(self, text):
        self.text = text

    def choose(self, hosts, now_s, tree):
        self.asked = sorted(hosts), now_s
        return type('Chosen', (), {
            'rates_bps': {('h0', 'h1'): 1e6}, 'text': self.text})


@pytest.mark.parametrize('text', ['seven are slow', ''])
def test_pairs_that_were_measured_count(text):
    pairs = Pairs(text)
    ask = Asking(pairs)
    problem, _rows, _plan = ask.solve(0)
    assert ask.view.remarks == ([text] if text else [])
    assert pairs.asked == (['h0', 'h1', 'h2'], asking.NOW_S)
    assert problem.pair_rate_bps == ask.state.payload_pairs(
        {('h0', 'h1'): 1e6})


def timed(ask, limit_s, **took_s):
    """A deadline, and phases that took so long lately."""
    clock = Clock()
    earlier = deadlines.Deadline(99, clock)
    for phase, phase_s in took_s.items():
        earlier.enter(phase)
        clock.now_s += phase_s
    ask.pace._clock = clock
    ask.pace.learn(earlier, 0.0)
    return deadlines.Deadline(limit_s, clock)


@pytest.mark.parametrize(('limit_s', 'solve_s', 'rank_s'), [
    (60, 2, 2),      # as configured
    (2.75, 1, 1.5),  # so that there is time for what follows
    (1.75, None, 0.5), (1.0, None, 0)])
def test_how_long_planning_may_take(monkeypatch, limit_s, solve_s, rank_s):
    """Ranking takes half a second here, and writing 1.25 s."""
    ask = Asking(placement={'budget_s': 2})
    solution = ask.solve(0)
    given = {}
    for name in ('plan', 'rank_hosts'):
        def noted(*args, name=name, was=getattr(planner, name), **values):
            given[name] = values['budget_s']
            return was(*args, **values)
        monkeypatch.setattr(planner, name, noted)
    deadline = timed(ask, limit_s, rank=0.5, commit=1.25)
    if solve_s is None:
        with pytest.raises(exception.TooLate):
            ask.solve(0, deadline=deadline)
    else:
        ask.solve(0, deadline=deadline)
        assert given['plan'] == pytest.approx(solve_s)
    ranked = ask.planning.rank(solution, 2, deadline)
    assert given['rank_hosts'] == pytest.approx(rank_s)
    assert ranked[0].host == solution[2].hosts[2]
    assert deadline.spent_s().keys() >= {'rank'}


def test_hosts_are_ranked_for_the_row_that_asks(ask):
    solution = ask.solve(0, hosts={'h0': (2, 4096, 90), 'h1': ONE})
    for row, host in enumerate(solution[2].hosts):
        assert ask.planning.rank(solution, row, deadlines.Deadline(60)
                                 )[0].host == host


@pytest.mark.parametrize(('within', 'spread', 'n', 'allowed'), [
    (None, None, 1, None), ('rack', 'rack', 1, None),
    ('rack:required', None, 3, ['h0', 'h1']),
    ('pod:required', None, 1, ['h0', 'h1', 'h2']),
    # Of several VMs each may need a rack of its own.
    (None, 'rack:required', 3, None),
    (None, 'rack:required', 1, ['h0', 'h1']),
    ('pod:required', 'rack:required', 1, ['h0', 'h1']),
    ('pod:required', 'rack:required', 2, ['h0', 'h1', 'h2'])])
def test_hosts_that_keep_to_required_wishes(ask, within, spread, n, allowed):
    ask.state.payload_tree = lambda now_s: cluster.Tree(tuple(
        cluster.Subtree(name, 1e9, 1e9, parent, level)
        for name, parent, level in (
            ('p0', None, 'pod'), ('r0', 'p0', 'rack'), ('r1', 'p0', 'rack'),
            ('r2', None, 'rack'))),
        {'h0': 'r0', 'h1': 'r0', 'h2': 'r1', 'h3': 'r2', 'unseen': 'r0'})
    wish = hint_reader.Wishes(*(
        text and hint_reader.wish(f'virtco:{key}', text)
        for key, text in (('within', within), ('spread', spread))))
    request = asking.request(num_instances=n, hosts=('h3', 'h2', 'h1', 'h0'))
    assert ask.planning.allowed(request, wish, 'h0') == allowed
