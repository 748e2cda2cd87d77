# SPDX-License-Identifier: Apache-2.0

"""A question without consequences."""

import msgspec
import pytest

from tests.unit import stored
from tests.unit.place import asking
from virtco import exception
from virtco import hints
from virtco.model import cluster
from virtco.model import snapshot
from virtco.place import deadline_promises
from virtco.place import whatif
from virtco.solver import budget
from virtco.wire import placement as wire
from virtco.wire import plan

RATES = {'h0': (1e9, 2e9), 'h1': (4e9, 8e9)}
SETTINGS = {'objective': 'online', 'planner': 'virtco'}
LOADS = (snapshot.ActiveCoflow('c', (('h0', 5.0),), (('h1', 5.0),)),)


@pytest.fixture(autouse=True)
def counted(monkeypatch):
    """Planning that a busy machine takes no time from."""
    monkeypatch.setattr(budget, 'clock_of', lambda _: budget.Counter())


def group(name='g', tm='[[0, 8e9], [0, 0]]', flavor=(1, 2, 3)):
    return {'name': name, 'tm': tm, 'flavor': asking.amounts(flavor)}


def question(*groups, free=(1, 4, 5), **values):
    return msgspec.convert({'groups': groups or [group()], 'hosts': [
        {'host': host, 'free': asking.amounts(free)} for host in RATES]
    } | values, plan.PlanRequest)


def build(asked, loads=LOADS, **limits):
    return whatif.build(stored.conf(limits=limits), asked, RATES,
                        cluster.Tree(), loads)


def answer(asked, loads=()):
    return msgspec.json.decode(msgspec.json.encode(whatif.answer(
        stored.conf(placement={'budget_s': 1}), asked, SETTINGS, RATES,
        cluster.Tree(), loads)))


def test_all_groups_are_one_problem():
    problem, labels = build(question(group(), group(
        'h', [[0, 0, 3], [0, 0, 0], [0, 7, 0]], (2, 3, 4))))
    assert labels == [('g', 0), ('g', 1), ('h', 0), ('h', 1), ('h', 2)]
    assert [(vm.name, vm.demand) for vm in problem.vms] == [
        ('g-0', (1, 2, 3)), ('g-1', (1, 2, 3)), ('h-0', (2, 3, 4)),
        ('h-1', (2, 3, 4)), ('h-2', (2, 3, 4))]
    assert [[(flow.src, flow.dst, flow.size_bytes) for flow in coflow.flows]
            for coflow in problem.coflows] == [
                [(0, 1, 8e9)], [(2, 4, 3), (4, 3, 7)]]
    assert [coflow.name for coflow in problem.coflows] == ['0/g', '1/h']
    assert [(host.name, host.free, host.egress_bps, host.ingress_bps)
            for host in problem.hosts] == [
        ('h0', (1, 4, 5), 1e9, 2e9), ('h1', (1, 4, 5), 4e9, 8e9)]


def test_links_may_be_given():
    asked = question()
    first, second = asked.hosts
    asked = msgspec.structs.replace(asked, hosts=[
        msgspec.structs.replace(first, egress_bps=9.0),
        msgspec.structs.replace(second, ingress_bps=9.0)])
    assert [(host.egress_bps, host.ingress_bps)
            for host in build(asked)[0].hosts] == [(9, 2e9), (4e9, 9)]


def test_what_is_sent_now_counts_unless_told_otherwise():
    assert build(question())[0].active == LOADS
    assert build(question(respect_active=True))[0].active == LOADS
    assert build(question(respect_active=False))[0].active == ()


def test_so_many_vms_at_most():
    two = question(group(), group('h'))
    assert len(build(two, max_vms_per_group=4)[0].vms) == 4
    with pytest.raises(exception.Invalid, match='at most 3 VMs'):
        build(two, max_vms_per_group=3)
    # Matrices of all that a body may hold take gigabytes.
    with pytest.raises(exception.Invalid, match='at most 3 VMs'):
        build(question(group(), group('h'), group('i', 'no matrix')),
              max_vms_per_group=3)


def test_an_answer_by_value():
    """8 GB leave h1 at 4 Gbit/s and come in at 2 Gbit/s."""
    found = answer(question())
    assert found['vms'] == [
        {'group': 'g', 'row': 0, 'host': 'h1'},
        {'group': 'g', 'row': 1, 'host': 'h0'}]
    assert found['coflows'] == [{'name': 'g', 'cct_s': 32}]
    assert found['bound_scope'] == 'any placement under these constraints'
    assert (found['cct_s'], found['lower_bound_s'], found['gap'],
            found['objective'], found['n_hosts']) == (32, 32, 0, 'online', 2)
    assert found['delays'] == []
    assert 0 <= found['seconds'] < 60


def test_a_question_says_what_to_minimise():
    found = answer(question(objective='isolated', planner='spread', seed=1))
    assert (found['objective'], found['method']) == ('isolated', 'spread')


def test_what_the_planner_is_asked(monkeypatch):
    """All the time is for a proof, as nobody waits to be launched."""
    asked = []
    solve = whatif.planner.plan

    def noted(problem, **values):
        asked.append(values)
        return solve(problem, **values)

    monkeypatch.setattr(whatif.planner, 'plan', noted)
    answer(question())
    answer(question(objective='isolated', planner='spread', seed=3,
                    budget_s=0.5))
    assert asked == [
        {'objective': 'online', 'planner': 'virtco', 'seed': 0,
         'budget_s': 1, 'certify': True},
        {'objective': 'isolated', 'planner': 'spread', 'seed': 3,
         'budget_s': 0.5, 'certify': True}]


def test_wishes_are_kept_or_refused():
    with pytest.raises(exception.WishRefused, match='levels are unknown'):
        answer(question(within='rack:required'))
    found = answer(question(spread='rack'))
    assert any('rack:preferred' in note for note in found['notes'])


def test_so_many_are_named_that_are_delayed(monkeypatch):
    def some(kind, **values):
        return [type(kind, (), {'coflow_id': str(number)} | values)
                for number in range(101)]

    monkeypatch.setattr(whatif.delays, 'delays', lambda *_: some(
        'Delay', before_s=1.0, after_s=float('inf')))
    found = answer(question())
    assert [one['coflow_id'] for one in found['delays']] == [
        str(number) for number in range(100)]
    assert found['delays'][0] == {
        'coflow_id': '0', 'before_s': 1.0, 'after_s': None, 'name': None,
        'project_id': None}


def test_a_deadline_is_judged_and_not_remembered():
    asked = []

    def judge(*args):
        asked.append(args)
        return deadline_promises.Judged(wire.Promise(at=7.0, promised=True,
                                                     why='yes'))

    found = whatif.answer(
        stored.conf(placement={'budget_s': 1}), question(deadline='2.5'),
        SETTINGS, RATES, cluster.Tree(), (), judge)
    assert msgspec.to_builtins(found.deadline) == {
        'at': 7.0, 'promised': True, 'why': 'yes', 'bound_s': None,
        'bound_here_s': None, 'earliest_s': None}
    ((deadline, problem, plan, n_vms, is_asked),) = asked
    assert deadline == hints.Deadline(after_s=2.5)
    assert len(problem.vms) == n_vms == len(plan.hosts) == 2
    assert is_asked
    assert answer(question())['deadline'] is None
    with pytest.raises(exception.HintInvalid):
        whatif.answer(stored.conf(), question(deadline='soon'), SETTINGS,
                      RATES, cluster.Tree(), (), judge)
