# SPDX-License-Identifier: Apache-2.0

"""A launch with a deadline is told yes, and it holds, or no and why."""

import dataclasses
import types

import numpy as np
import pytest
import sqlalchemy as sa

from tests.unit.place import asking
from virtco import hints
from virtco import units
from virtco.db import models
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks as model_uplinks
from virtco.place import answer as answers
from virtco.place import deadline_promises
from virtco.place import whatif
from virtco.state import live_state
from virtco.state import schedule_input
from virtco.state import uplink_rates

#: Two VMs on two hosts of one slot: eight gigabits each way.
MATRIX = [[0, 1e9], [1e9, 0]]
HOSTS = {'h0': (1, 512, 3), 'h1': (1, 512, 3)}


@pytest.fixture
def ask(monkeypatch):
    """Links of 1 Gbit/s, of which coflows may use all."""
    monkeypatch.setattr(live_state, 'LiveState', lambda: live_state_of(
        schedule_input.Rules(uplink=uplink_rates.Rules(default_bps=1e9))))
    return asking.Asking()


live_state_of = live_state.LiveState


def place(ask, name, deadline, matrix=None, number=0, **hinted):
    answer = ask.place(number, matrix or MATRIX, HOSTS, num_instances=2,
                       hints={'virtco:coflow': name,
                              'virtco:deadline': deadline} | hinted)
    free(ask)
    load(ask)
    return answer


def free(ask):
    """Whoever was launched takes no room any more."""
    with ask.database.writer() as session:
        session.execute(sa.update(models.Member).values(
            vcpus=0.0, memory_mb=0.0, disk_gb=0.0))


def load(ask):
    with ask.database.reader() as session:
        ask.state.load_groups(session.query(models.Member).all(),
                              session.query(models.Coflow).all())


def coflows(ask):
    return {row['name']: (row['deadline_at'], row['is_promised'])
            for row in ask.rows(models.Coflow)}


def alone_s(ask):
    """Of the group with what is reserved beside its bytes."""
    answer = place(ask, 'probe', '1000')
    with ask.database.writer() as session:
        session.execute(sa.delete(models.Member))
        session.execute(sa.delete(models.Coflow))
        session.execute(sa.delete(models.Group))
    load(ask)
    return answer.deadline.bound_here_s


def test_yes(ask):
    took_s = alone_s(ask)
    assert 8 * deadline_promises.MARGIN <= took_s < 10
    answer = place(ask, 'a', str(took_s + 1), number=5)
    assert answer.deadline.promised
    assert answer.deadline.at == pytest.approx(asking.NOW_S + took_s + 1)
    assert answer.deadline.bound_here_s == pytest.approx(took_s)
    assert answer.deadline.earliest_s == pytest.approx(took_s)
    assert answer.deadline.bound_s <= took_s
    assert 'yes, its rates are reserved' in answer.why
    assert coflows(ask) == {'a': (pytest.approx(asking.NOW_S + took_s + 1),
                                  True)}
    event = [one for one in ask.rows(models.Event)
             if one['kind'] == 'deadline'][-1]
    assert 'yes' in event['detail']
    # It is stored with the answer, so that explain tells it too.
    stored = ask.rows(models.Placement)[-1]
    found = whatif.explain(
        answers.DECODER.decode(stored['answer']), None, 1.0)
    assert found.deadline.promised


def test_no_has_a_bound_and_the_earliest_time(ask):
    took_s = alone_s(ask)
    assert place(ask, 'a', str(took_s * 1.5)).deadline.promised
    answer = place(ask, 'b', str(took_s * 1.4), number=5)
    assert not answer.deadline.promised
    assert answer.status == 'planned'
    # The first leaves half of its time, and the second needs all of it.
    assert answer.deadline.bound_here_s == pytest.approx(
        took_s + took_s / deadline_promises.MARGIN)
    assert answer.deadline.earliest_s >= answer.deadline.bound_here_s * (
        1 - 1e-6)
    assert 'could be promised' in answer.why
    assert coflows(ask)['b'][1] is False
    later = place(ask, 'c', str(answer.deadline.earliest_s * 1.001),
                  number=8)
    assert later.deadline.promised


def test_no_promise_is_faster_than_the_caps_of_vms(ask):
    """A gigabyte at 100 Mbit/s; the link has 1 Gbit/s."""
    hinted = {'virtco:coflow': 'a', 'virtco:deadline': '60'}
    answer = ask.place(0, MATRIX, HOSTS, num_instances=2, hints=hinted,
                       egress_cap_bps=1e8)
    assert not answer.deadline.promised
    assert answer.deadline.bound_here_s == pytest.approx(
        80 * deadline_promises.MARGIN, rel=0.05)
    earliest_s = answer.deadline.earliest_s
    assert earliest_s == pytest.approx(answer.deadline.bound_here_s)
    hinted = {'virtco:coflow': 'b', 'virtco:deadline': str(earliest_s + 1)}
    free(ask)
    answer = ask.place(5, MATRIX, HOSTS, num_instances=2, hints=hinted,
                       egress_cap_bps=1e8)
    assert answer.deadline.promised


def test_a_time_instead_of_seconds(ask):
    answer = place(ask, 'a', '1970-01-01T01:00:00Z')
    assert answer.deadline.at == 3600
    assert answer.deadline.promised
    answer = place(ask, 'b', '1970-01-01T00:10:00+00:00', number=5)
    assert answer.deadline.at == 600
    assert not answer.deadline.promised


def test_what_cannot_be_promised_at_all(ask):
    answer = place(ask, 'a', '1e6', [
        {'name': 'x', 'tm': MATRIX, 'iterations': 5}])
    assert not answer.deadline.promised
    assert 'again and again' in answer.deadline.why
    assert answer.deadline.earliest_s is None
    fair = asking.Asking(scheduler={'order': 'fair'})
    answer = place(fair, 'a', '1e6')
    assert not answer.deadline.promised
    assert 'fair' in answer.deadline.why


def test_without_a_hint_there_is_no_answer(ask):
    answer = ask.place(0, MATRIX, HOSTS, num_instances=2)
    assert answer.deadline is None
    assert coflows(ask) == {'a': (None, False)}


def test_a_promise_rests_on_all_others(ask):
    """Two launches at once on the same snapshot: the second is judged anew,
    when the first is known.
    """
    took_s = alone_s(ask)
    other = ask.another()
    other.state._rules = ask.state._rules
    assert place(other, 'b', str(1.5 * took_s), number=5).deadline.promised
    known = []
    judge = ask.placer.promises.judge

    def late(*args, **kwargs):
        found = judge(*args, **kwargs)
        known.append(found.promise.promised)
        load(ask)
        return found

    ask.placer.promises.judge = late
    answer = ask.place(0, MATRIX, HOSTS, num_instances=2, hints={
        'virtco:coflow': 'a', 'virtco:deadline': str(1.5 * took_s)})
    assert known == [True, False]
    assert not answer.deadline.promised


def test_a_promise_that_another_process_made_just_now(ask):
    """Its group is read at once, not when it would be."""
    took_s = alone_s(ask)
    other, told = ask.another(), []
    other.state._rules = ask.state._rules
    group = place(other, 'b', str(1.5 * took_s), number=5).group
    ask.placer._state.invalidate = told.append
    ask.placer._state.refresh = lambda: load(ask)
    answer = ask.place(0, MATRIX, HOSTS, num_instances=2, hints={
        'virtco:coflow': 'a', 'virtco:deadline': str(1.5 * took_s)})
    assert told == [[group]]
    assert (answer.status, answer.deadline.promised) == ('planned', False)


def test_a_promise_on_hosts_that_only_another_process_knows(ask):
    """No launch with a deadline would be planned before its deadline."""
    assert place(ask, 'b', '1000', number=5).deadline.promised
    other = ask.another()
    load(other)
    answer = other.place(
        0, MATRIX, {'h2': (1, 512, 3), 'h3': (1, 512, 3)}, num_instances=2,
        hints={'virtco:coflow': 'a', 'virtco:deadline': '1000'})
    assert answer.deadline.promised


def test_a_question_is_not_remembered(ask):
    """Only launches decide who is among the largest."""
    took_s = alone_s(ask)
    judged = ask.placer.promises
    assert place(ask, 'a', str(took_s * 1.1)).deadline.promised
    for number in range(3):
        assert not place(ask, f'b{number}', str(took_s),
                         number=5 + number).deadline.promised
    before_s = judged._withheld.limit_s
    assert before_s < 1000
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    found = judged.judge(hints.Deadline(after_s=1e5), decision.problem,
                         decision.plan, 2, True)
    assert found.promise.promised
    assert judged._withheld.limit_s == before_s
    # A large group with little time waits while others find no room.
    found = judged.judge(hints.Deadline(after_s=took_s * 3.9),
                         decision.problem, decision.plan, 2, True)
    assert not found.promise.promised or before_s >= took_s


def larger(decision, factor):
    """The same group with so many times the bytes."""
    return dataclasses.replace(decision.problem, coflows=tuple(
        one.scaled(factor) for one in decision.problem.coflows))


def test_who_is_larger_than_the_limit_waits_for_a_loose_deadline(ask):
    """Four times what it takes alone; whoever is as large needs no more."""
    took_s = alone_s(ask)
    judged = ask.placer.promises
    place(ask, 'a', str(took_s * 1.1))
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])

    def question(factor, after_s):
        return judged.judge(hints.Deadline(after_s=after_s),
                            larger(decision, factor), decision.plan, 2,
                            True).promise

    # While all find room nobody is withheld.
    assert question(2.0, 5 * took_s).promised
    assert not place(ask, 'b', str(took_s), number=5).deadline.promised
    assert question(1.0, 3 * took_s).promised
    assert question(1.0, 3 * took_s).earliest_s < 3 * took_s
    # What is larger waits, though there is room.
    held = question(2.0, 5 * took_s)
    assert not held.promised and 'among the largest' in held.why
    assert held.earliest_s == pytest.approx(8 * took_s)
    assert question(2.0, 8.1 * took_s).promised
    # Of a second's part nobody makes a second.
    tiny = question(1e-3, took_s)
    assert tiny.promised and tiny.earliest_s < 2.5 * took_s


def test_who_asks_for_what_cannot_be_withholds_nothing_from_others(ask):
    took_s = alone_s(ask)
    judged = ask.placer.promises
    place(ask, 'a', str(took_s * 1.1))
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    for part, is_noted in ((0.9, False), (0.99, True)):
        assert not judged.judge(
            hints.Deadline(after_s=part * took_s), decision.problem,
            decision.plan, 2).promise.promised
        assert np.isfinite(judged._withheld.limit_s) == is_noted


def test_how_long_it_takes_is_told(ask):
    took_s = alone_s(ask)
    told = place(ask, 'a', str(took_s * 1.5)).deadline
    assert (f'it takes at least {units.format_time(told.bound_s)} on any '
            f'hosts it may use, and {units.format_time(told.bound_here_s)} '
            'on these') in told.why
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    never = ask.placer.promises.judge(
        hints.Deadline(after_s=took_s), dataclasses.replace(
            decision.problem, hosts=tuple(
                dataclasses.replace(host, egress_bps=0.0)
                for host in decision.problem.hosts)),
        decision.plan, 2, True).promise
    assert not never.promised and never.bound_here_s is None
    assert 'and forever on these' in never.why


def test_the_time_alone_is_that_of_the_bytes(ask):
    """Of the fewest as well; those of all coflows of a pair count."""
    took_s = alone_s(ask)
    few = place(ask, 'few', '1000', [
        {'name': name, 'tm': [[0, size], [size, 0]]}
        for name, size in (('x', 4), ('y', 6))])
    assert few.deadline.bound_here_s == pytest.approx(took_s * 10 / 1e9)


def test_who_finds_no_room_does_not_hear_of_others(ask):
    took_s = alone_s(ask)
    place(ask, 'a', '1e4')
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    judged = ask.placer.promises
    judged._withheld.holds = lambda *_: True
    for after_s, is_told in ((1e5, True), (0.1 * took_s, False)):
        found = judged.judge(hints.Deadline(after_s=after_s),
                             decision.problem, decision.plan, 2, True)
        assert not found.promise.promised
        assert ('among the largest' in found.promise.why) == is_told


@pytest.mark.parametrize('least_s', [1.0, 1e6])
def test_any_hosts_take_no_longer_than_these(ask, least_s):
    """Even where slow pairs of hosts, which no promise knows, bound it."""
    took_s = alone_s(ask)
    place(ask, 'a', '1e4')
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    found = ask.placer.promises.judge(
        hints.Deadline(after_s=1e4), decision.problem, dataclasses.replace(
            decision.plan, lower_bound_s=least_s), 2, True).promise
    assert found.bound_s == min(least_s, found.bound_here_s)
    assert found.bound_here_s >= took_s


def test_a_host_of_which_nothing_is_known(ask):
    place(ask, 'a', '1e4')
    decision = ask.decisions.find(ask.rows(models.Group)[0]['id'])
    judged = deadline_promises.Promises(
        live_state_of(), lambda: False, ask.clock)
    found = judged.judge(hints.Deadline(after_s=1e4), decision.problem,
                         decision.plan, 2)
    assert 'nothing is known of host h0' in found.promise.why


def test_a_question_may_give_a_host_less_than_it_has():
    """Each way by itself, and of no other host."""
    found = deadline_promises._rates(
        types.SimpleNamespace(hosts=(
            cluster.Host('a', (1.0,), 3.0, 5.0),)),
        live.Ports(('a', 'b'), np.array([4.0, 7.0]), np.array([2.0, 9.0]),
                   model_uplinks.NONE))
    assert [rates.tolist() for rates in found] == [[3.0, 7.0], [2.0, 9.0]]
