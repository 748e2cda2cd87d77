# SPDX-License-Identifier: Apache-2.0

"""The stragglers' guard in the controller."""

import dataclasses
import math

import pytest

from tests.unit.decide import test_gates
from virtco.decide import gates
from virtco.decide import lateness
from virtco.decide import policies
from virtco.scheduling.periodic import guard as guard_model

FIRST, OTHER = test_gates.FIRST, test_gates.SECOND_PAIR


def two(now_s=100.0, arrivals_s=(100.0, 100.0), computes_s=(40.0, 20.0),
        resting=(False, False), **options):
    """Two jobs of one uplink that the controller serves in order."""
    jobs = []
    for name, pair, compute_s, arrival_s, is_resting in zip(
            'ab', (FIRST, OTHER), computes_s, arrivals_s, resting,
            strict=True):
        one = test_gates.job(name, [pair], 20.0, compute_s)
        jobs.append(dataclasses.replace(
            one, is_resting=is_resting, moved_s=now_s,
            live=dataclasses.replace(one.live, arrival_s=arrival_s)))
    return test_gates.at(*jobs, now_s=now_s, **options)


def guard_of(plan):
    return guard_model.Guard([plan.jobs['a'], plan.jobs['b']])


def test_deadlines_are_those_of_the_simulators_guard():
    seen = two()
    plan, found = gates.plan(seen), lateness.Lateness()
    guard = guard_of(plan)
    told = found.follow(plan, seen.coflows)
    for place, (name, compute_s) in enumerate((('a', 40.0), ('b', 20.0))):
        guard.began(place, 100.0 - compute_s)
        assert told[name] == guard.late_s(place)
    # The same iteration; then b's next one, while a rests.
    assert found.follow(plan, two(130.0).coflows) == told
    later = two(150.0, (100.0, 150.0), resting=(True, False))
    guard.ended(1, 130.0)
    assert found.follow(plan, later.coflows) == {'b': guard.late_s(1)}


def test_who_is_late_goes_first_and_the_loop_looks_in_time():
    seen = two()
    plan = gates.plan(seen)
    late_s = {'b': 160.0, 'a': 170.0}

    def order(now_s):
        found = policies.compute(two(now_s), None, plan.of_host, late_s)
        return ([one.coflow_id for one in found.schedule.coflows],
                found.next_check_s)

    # By intensity, a computes for longer.
    assert order(150.0) == (['a', 'b'], 160.0)
    assert order(160.0) == (['b', 'a'], 170.0)
    # Who is late for longest.
    assert order(171.0) == (['b', 'a'], math.inf)
    late_s['a'] = 155.0
    assert order(171.0) == (['a', 'b'], math.inf)


def test_who_pauses_begins_anew_and_who_does_so_often_is_not_guarded():
    seen = two()
    plan, found = gates.plan(seen), lateness.Lateness()
    guard = guard_of(plan)
    found.follow(plan, seen.coflows)
    arrival_s = 100.0
    for _ in range(lateness.MOST_ANEW):
        arrival_s += 1000.0
        told = found.follow(plan, two(arrival_s, (100.0, arrival_s)).coflows)
        guard.began(1, arrival_s - 20.0)
        assert told['b'] == guard.late_s(1)
    told = found.follow(plan, two(arrival_s, (
        100.0, arrival_s + 1000.0)).coflows)
    assert told.keys() == {'a'}
    # Another plan: the jobs of another size.
    again = gates.plan(two(computes_s=(40.0, 30.0)), before=plan)
    assert again is not plan
    assert found.follow(again, two().coflows).keys() == {'a', 'b'}


@pytest.mark.parametrize('seen', [
    two(gates=False), two(order='fair'),
    test_gates.at(test_gates.job('a', [FIRST]), test_gates.job('b', [OTHER])),
    test_gates.at(test_gates.job('a', [FIRST], 20.0, 40.0),
                  test_gates.job('b', [('h2', 'h3')], 20.0, 40.0))],
    ids=['no gates', 'fair', 'short', 'apart'])
def test_who_is_not_guarded(seen):
    """Of short iterations the controller hears too late."""
    assert lateness.Lateness().follow(gates.plan(seen), seen.coflows) == {}
