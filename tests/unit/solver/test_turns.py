# SPDX-License-Identifier: Apache-2.0

"""Jobs that compute and send in turn: where they go."""

import dataclasses

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.scheduling.periodic import jobs as jobs_model
from virtco.scheduling.periodic import shifts
from virtco.solver import budget as budgets
from virtco.solver.judging import sharing
from virtco.solver.model import instance as instances
from virtco.solver import planner
from virtco.solver import turns

BYTE_BPS = 8.0


def job(name, compute_s, *pairs):
    """A job that runs, of (source, destination, bytes) each iteration."""
    out, into = {}, {}
    for src, dst, size_bytes in pairs:
        out[src] = out.get(src, 0.0) + size_bytes
        into[dst] = into.get(dst, 0.0) + size_bytes
    return snapshot.ActiveCoflow(
        name, tuple(out.items()), tuple(into.items()), pairs,
        snapshot.Iteration(compute_s, 2, pairs))


def own(compute_s, size_bytes=1.0, n_vms=2):
    return dataclasses.replace(coflow.Coflow.from_flows(
        'own', n_vms, [(0, 1, size_bytes)]), iterations=0,
        compute_s=compute_s)


def racks(active, compute_s=1.0, size_bytes=1.0, **changes):
    """Three racks of two hosts, uplinks of 1 B/s, hosts of 100 B/s; the own
    sender runs in the first rack, and the receiver goes to one of the others.
    """
    names = [f'h{i}' for i in range(6)]
    fields = {
        'hosts': tuple(cluster.Host(
            name, (0.0,) if i < 2 else (1.0,), 100 * BYTE_BPS,
            100 * BYTE_BPS) for i, name in enumerate(names)),
        'vms': (cluster.Vm('sender', (1.0,), pinned='h0', counted=True),
                cluster.Vm('receiver', (1.0,))),
        'coflows': (own(compute_s, size_bytes),),
        'tree': cluster.Tree(
            tuple(cluster.Subtree(f'r{r}', 10 * BYTE_BPS if r == 0
                                  else BYTE_BPS,
                                  10 * BYTE_BPS if r == 0 else BYTE_BPS)
                  for r in range(3)),
            {name: f'r{i // 2}' for i, name in enumerate(names)}),
        'active': tuple(active)}
    return snapshot.PlacementProblem(**{**fields, **changes})


def rack_of(problem, plan):
    return problem.tree.leaf_of[plan.hosts[1]]


def place(problem, **kwargs):
    return planner.plan(problem, clock=budgets.Counter(),
                        **({'budget_s': 2.0} | kwargs))


#: Each keeps the downlink of its rack busy for as long as the other: what is
#: left of them does not tell them apart.
FITS = 1.0
CLASHES = 0.1


@pytest.mark.parametrize('fitting', ['r1', 'r2'])
def test_a_job_goes_where_it_can_send_in_turn(fitting):
    into = {'r1': 'h3', 'r2': 'h5'}
    problem = racks([
        job(rack, FITS if rack == fitting else CLASHES, ('h1', host, 1.0))
        for rack, host in into.items()])
    plan = place(problem)
    assert rack_of(problem, plan) == fitting
    found, = sharing.shared(problem, plan)
    assert (found.coflow_id, found.coflow, found.links) == (
        fitting, 'own', (f'rack {fitting} down',))
    assert found.score == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize('free', ['r1', 'r2'])
def test_it_does_not_share_with_one_that_does_not_fit(free):
    """Also where that one has sent nearly all of its iteration."""
    rack, host = {'r1': ('r2', 'h5'), 'r2': ('r1', 'h3')}[free]
    busy = job(rack, CLASHES, ('h1', host, 1.0))
    busy = dataclasses.replace(
        busy, out_bytes=(('h1', 1e-3),), in_bytes=((host, 1e-3),),
        pairs=(('h1', host, 1e-3),))
    # Of the rack where nobody trains, the uplink is a little slower.
    problem = racks([busy])
    slower = tuple(dataclasses.replace(
        one, uplink_in_bps=0.9 * BYTE_BPS) if one.name == free else one
        for one in problem.tree.subtrees)
    problem = dataclasses.replace(problem, tree=dataclasses.replace(
        problem.tree, subtrees=slower))
    without = dataclasses.replace(problem, active=(
        dataclasses.replace(busy, iteration=None),))
    assert rack_of(problem, place(without)) == rack
    assert rack_of(problem, place(problem)) == free
    assert place(problem).method == snapshot.Method.IN_TURN


def test_it_takes_the_faster_link_of_one_that_fits():
    """What runs there has all of its iteration left, which a search that
    counts bytes goes around.
    """
    problem = racks([job('fits', 2.0, ('h1', 'h3', 1.0))], compute_s=2.0)
    slower = tuple(dataclasses.replace(
        one, uplink_in_bps=0.8 * BYTE_BPS) if one.name == 'r2' else one
        for one in problem.tree.subtrees)
    problem = dataclasses.replace(problem, tree=dataclasses.replace(
        problem.tree, subtrees=slower))
    without = dataclasses.replace(problem, active=tuple(
        dataclasses.replace(one, iteration=None) for one in problem.active))
    assert rack_of(problem, place(without)) == 'r2'
    assert rack_of(problem, place(problem)) == 'r1'


def test_ordinary_coflows_do_not_pay_for_it():
    """The rack without a job has a long shuffle on its link."""
    shuffle = snapshot.ActiveCoflow(
        'shuffle', (('h1', 5.0),), (('h5', 5.0),), (('h1', 'h5', 5.0),))
    busy = job('busy', CLASHES, ('h1', 'h3', 1.0))
    problem = racks([busy, shuffle])
    assert rack_of(problem, place(problem)) == 'r1'


@pytest.mark.parametrize('changed', ['own', 'running', 'both'])
def test_others_are_placed_as_ever(changed, monkeypatch):
    """Unless a job is placed beside jobs, turns are not looked at, and what
    runs in turn counts by what it has left.
    """
    def wrong(*args):
        raise AssertionError('turns')

    monkeypatch.setattr(turns, 'best', wrong)
    problem = racks([job('r1', 1.0, ('h1', 'h3', 1.0)),
                     job('r2', 0.1, ('h1', 'h5', 0.7))])
    plain = dataclasses.replace(
        problem, coflows=(dataclasses.replace(
            problem.coflows[0], compute_s=None, iterations=1),),
        active=tuple(dataclasses.replace(one, iteration=None)
                     for one in problem.active))
    mixed = {'own': dataclasses.replace(problem, active=plain.active),
             'running': dataclasses.replace(problem, coflows=plain.coflows),
             'both': plain}[changed]
    assert place(mixed) == place(plain)
    assert sharing.shared(mixed, place(mixed)) == ()


def test_it_is_the_same_plan_each_time():
    problem = racks([job('r1', 1.0, ('h1', 'h3', 1.0)),
                     job('r2', 0.1, ('h1', 'h5', 1.0))])
    assert place(problem) == place(problem)


def test_without_time_it_is_the_search_s_answer():
    problem = racks([job('r1', 1.0, ('h1', 'h3', 1.0)),
                     job('r2', 0.1, ('h1', 'h5', 1.0))])
    assert place(problem, budget_s=0.01).method != snapshot.Method.IN_TURN


def test_a_job_on_one_host_shares_nothing():
    problem = racks([job('r1', 1.0, ('h1', 'h3', 1.0))], hosts=tuple(
        cluster.Host(f'h{i}', (2.0,), 800.0, 800.0) for i in range(6)))
    plan = place(problem)
    assert plan.hosts == ('h0', 'h0')
    assert sharing.shared(problem, plan) == ()


def test_what_jobs_lose_is_what_the_new_one_costs():
    """Two that ask for all of a link all the time halve each other."""
    problem = racks([job('r1', 1e-9, ('h1', 'h3', 1.0))], compute_s=1e-9)
    jobs = sharing.Jobs(instances.build(problem, reduce=False))
    alone, beside = (jobs.computing(np.array([0, host])) for host in (4, 2))
    assert beside < alone


jobs_of_a_link = st.lists(st.tuples(
    st.floats(0.01, 3), st.floats(0.01, 3)), min_size=2, max_size=4).map(
        lambda rows: [jobs_model.PeriodicJob(
            str(i), compute_s, {'link': send_s})
            for i, (compute_s, send_s) in enumerate(rows)])


@settings(max_examples=40, deadline=None)
@given(jobs_of_a_link, st.randoms(use_true_random=False))
def test_compatibility_is_a_share_whatever_the_order(jobs, rng):
    score = shifts.compatibility(jobs)
    assert 0 <= score <= 1
    rng.shuffle(jobs)
    assert shifts.compatibility(jobs) == score


@settings(max_examples=40, deadline=None)
@given(st.lists(st.floats(0.05, 1), min_size=2, max_size=4),
       st.floats(1, 2))
def test_jobs_that_fit_in_turn_are_compatible(send_s, room):
    """One period for all of them, in which all can send."""
    period_s = room * sum(send_s)
    jobs = [jobs_model.PeriodicJob(str(i), period_s - each_s,
                                   {'link': each_s})
            for i, each_s in enumerate(send_s)]
    assert shifts.compatibility(jobs) == pytest.approx(1.0, abs=1e-6)
