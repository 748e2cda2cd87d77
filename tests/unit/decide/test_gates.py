# SPDX-License-Identifier: Apache-2.0

"""Gates that the controller plans for periodic coflows."""

import dataclasses

import numpy as np
import pytest

from tests.unit.decide import test_policies
from virtco.decide import gates
from virtco.decide import gating
from virtco.decide import policies
from virtco import metrics
from virtco.model import uplinks
from virtco.scheduling.periodic import shifts
from virtco.table import edge_policy

#: Bytes that keep a link busy for a second.
SECOND = 0.98e9 / 8
FIRST, SECOND_PAIR, OTHER = ('h0', 'h1'), ('h0', 'h2'), ('h2', 'h3')


def job(name, pairs, send_s=0.8, compute_s=1.0, left=1.0):
    """:param left: part of the iteration's bytes."""
    size_bytes = send_s * SECOND
    made = test_policies.coflow(name, dict.fromkeys(pairs, left * size_bytes))
    flows = made.live.flows
    return dataclasses.replace(made, live=dataclasses.replace(
        made.live, compute_s=compute_s, workers=2, whole=type(flows)(
            flows.pairs, np.full(len(flows.pairs), size_bytes))))


def at(*jobs, **options):
    return test_policies.at(*jobs, **options)


def test_two_jobs_of_one_uplink_send_in_turn():
    found = gates.plan(at(job('a', [FIRST]), job('b', [SECOND_PAIR])))
    a, b = found.gated['a'], found.gated['b']
    assert a.gate.period_s == b.gate.period_s == pytest.approx(1.88)
    apart_s = (b.gate.offset_s - a.gate.offset_s) % 1.88
    assert a.open_s == pytest.approx(0.88)
    assert 0.88 - 1e-6 <= apart_s <= 1.0 + 1e-6
    told = found.of_host['h0']
    assert told.keys() == {'a', 'b'} and found.of_host.keys() == {'h0'}
    assert told['a'].iteration_bytes == pytest.approx(0.8 * SECOND)


def test_jobs_that_share_nothing_have_no_gates():
    found = gates.plan(at(job('a', [FIRST]), job('b', [OTHER])))
    assert found.jobs.keys() == {'a', 'b'}
    assert not found.gated and not found.of_host


@pytest.mark.parametrize('options, jobs', [
    ({'order': 'fair'}, {}), ({'gates': False}, {}),
    ({}, {'compute_s': 0.0}), ({}, {'send_s': 0.1})])
def test_who_is_not_planned_for(options, jobs):
    """Without computing there is no period; what is short is late anyway."""
    found = gates.plan(at(job('a', [FIRST], **jobs), job(
        'b', [SECOND_PAIR], **jobs), **options))
    assert found is gates.NONE


def test_jobs_above_the_hosts_meet_too():
    """Two hosts of one rack, whose uplink is as fast as one of them."""
    seen = at(job('a', [('h0', 'h2')]), job('b', [('h1', 'h3')]))
    assert not gates.plan(seen).gated
    found = gates.plan(dataclasses.replace(seen, uplinks=uplinks.Uplinks(
        np.array([[0], [0], [1], [1]]), np.full(4, 0.98e9))))
    assert found.gated.keys() == {'a', 'b'}
    assert found.of_host.keys() == {'h0', 'h1'}


def test_a_job_has_one_gate_at_all_of_its_hosts():
    """By which edge modules keep together without a word between them."""
    ring = [('h0', 'h1'), ('h1', 'h0')]
    found = gates.plan(at(job('a', ring), job('b', ring)), 1.05)
    for name in 'ab':
        first, second = (found.of_host[host][name] for host in ('h0', 'h1'))
        assert first == second
        assert first.iteration_bytes == pytest.approx(1.05 * 0.8 * SECOND)


def test_a_plan_holds_while_bytes_and_rates_move_a_little():
    before = gates.plan(at(job('a', [FIRST]), job('b', [SECOND_PAIR])))
    later = at(job('a', [FIRST], left=0.1), job('b', [SECOND_PAIR]),
               now_s=200.0)
    assert gates.plan(later, before=before) is before
    slower = dataclasses.replace(later, egress_bps=0.95 * later.egress_bps)
    assert gates.plan(slower, before=before) is before
    half = dataclasses.replace(later, egress_bps=0.5 * later.egress_bps)
    found = gates.plan(half, before=before)
    assert found.gated['a'].gate.period_s > before.gated['a'].gate.period_s
    assert found.gated['a'].epoch > before.gated['a'].epoch


def test_others_that_come_elsewhere_change_no_turn():
    both = job('a', [FIRST]), job('b', [SECOND_PAIR])
    before = gates.plan(at(*both))
    found = gates.plan(at(*both, job('c', [OTHER]), now_s=200.0),
                       before=before)
    assert found.jobs.keys() == {'a', 'b', 'c'}
    assert found.gated == before.gated
    assert found.of_host is before.of_host


def test_a_third_job_is_let_in_and_the_first_keeps_its_place():
    """The circle is another one, but it begins where it was."""
    two = [job(name, [FIRST], 0.5, 1.1) for name in 'ab']
    before = gates.plan(at(*two))
    assert before.gated.keys() == {'a', 'b'}
    found = gates.plan(at(*two, job('c', [FIRST], 0.5, 1.1), now_s=200.0),
                       before=before)
    assert found.gated.keys() == {'a', 'b', 'c'}
    assert found.gated['a'].gate.offset_s == pytest.approx(
        before.gated['a'].gate.offset_s)
    again = gates.plan(at(*two, now_s=300.0), before=found)
    # Two of the three turns serve two as well.
    assert again.gated['a'].gate.offset_s == pytest.approx(
        found.gated['a'].gate.offset_s)


def test_a_plan_that_gains_nothing_is_not_taken(monkeypatch):
    two = job('a', [FIRST]), job('b', [SECOND_PAIR])
    before = gates.plan(at(*two))
    moved = job('a', [FIRST], 0.8, 0.85), two[1]
    planned = []

    def plan(jobs, fair):
        planned.append(fair)
        return shifts.Plan(('a', 'b'), {})

    monkeypatch.setattr(shifts, 'plan', plan)
    found = gates.plan(at(*moved), before=before)
    assert planned == [True]
    assert {name: one.gate for name, one in found.gated.items()} == {
        name: one.gate for name, one in before.gated.items()}


def test_so_many_are_planned_for_and_no_more(monkeypatch):
    monkeypatch.setattr(gates, 'MOST_JOBS', 3)
    found = gates.plan(at(*(job(f'j{i}', [FIRST], compute_s=1 + i)
                            for i in range(5))))
    assert found.jobs.keys() == {'j2', 'j3', 'j4'}


def test_policies_carry_gates_and_change_when_they_do():
    jobs = job('a', [FIRST]), job('b', [SECOND_PAIR])
    seen = at(*jobs)
    first = policies.compute(seen)
    assert all(c.gate is None for c in
               first.of_host['h0'].policy().classes)
    plan = gates.plan(seen)
    second = policies.compute(seen, first, plan.of_host)
    assert second.changed == ('h0',)
    document = second.of_host['h0'].policy()
    told = {c.coflow_id: c.gate for c in document.classes}
    assert told == plan.of_host['h0']
    assert edge_policy.EdgePolicy.from_dict(document.to_dict()) == document
    assert policies.compute(seen, second, plan.of_host).changed == ()
    off = dataclasses.replace(seen, options=dataclasses.replace(
        seen.options, gates=False))
    third = policies.compute(off, second, plan.of_host)
    assert third.changed == ('h0',) and not third.of_host['h0'].gates


def test_planning_waits_for_news_and_rests_after_them():
    snapshots, told = [at(job('a', [FIRST]))], []
    planner = gating.Planner(lambda: snapshots[-1], 1.0,
                             lambda: told.append(planner.plan),
                             metrics.Metrics())
    planner.turn()
    assert planner.plan.jobs.keys() == {'a'} and not told
    snapshots.append(at(job('a', [FIRST]), job('b', [FIRST])))
    planner._due_s = float('inf')
    planner.turn()
    assert planner.plan.jobs.keys() == {'a'}
    planner._due_s = 0.0
    planner.turn()
    assert planner.plan.gated.keys() == {'a', 'b'}
    assert told == [planner.plan]
    planner.turn()
    assert len(told) == 1
