# SPDX-License-Identifier: Apache-2.0

"""Rates that VMs never exceed."""

import dataclasses
import itertools
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver import counterfactuals
from virtco.solver import planner
from virtco.solver.model import caps
from virtco.solver.model import instance as instances
from virtco.solver.model import objectives

GB = 1e9
BURSTS = st.sampled_from([0.0, 0.0, 1.0, 1e8])
CAPS = st.sampled_from((math.inf, math.inf, 1e8, 3e8, 2e9, 0.0))


@st.composite
def capped(draw):
    """A problem of any kind, some of whose VMs have caps."""
    found = draw(problems.problems(max_vms=3, extras=False))
    return dataclasses.replace(found, vms=tuple(dataclasses.replace(
        vm, egress_cap_bps=draw(CAPS), ingress_cap_bps=draw(CAPS),
        egress_burst_bytes=draw(BURSTS), ingress_burst_bytes=draw(BURSTS))
        for vm in found.vms))


def without(problem):
    return dataclasses.replace(problem, vms=tuple(dataclasses.replace(
        vm, egress_cap_bps=math.inf, ingress_cap_bps=math.inf)
        for vm in problem.vms))


def plan(problem):
    return planner.plan(problem, clock=budgets.Counter(),
                        objective=snapshot.Objective.ISOLATED)


def least_s(problem, flows):
    """The longest that some VM takes to send or receive flows."""
    found_s = 0.0
    for i, vm in enumerate(problem.vms):
        for end, rate_bps, burst_bytes in (
                (0, vm.egress_cap_bps, vm.egress_burst_bytes),
                (1, vm.ingress_cap_bps, vm.ingress_burst_bytes)):
            sent = sum(flow[2] for flow in flows
                       if flow[end] == i and flow[0] != flow[1])
            if sent and not rate_bps:
                return math.inf
            found_s = max(found_s, 8 * (sent - burst_bytes) / rate_bps
                          if sent else 0)
    return found_s


def enumerated_s(problem):
    """Least CCT of all placements, each with what its caps need."""
    inst = instances.build(without(problem))
    flows = [row for one in problem.coflows for row in one.matrix.rows()]
    return min((max(objectives.evaluate(
        inst, np.array(assign), snapshot.Objective.ISOLATED).cct_s,
        least_s(problem, flows)) for assign in itertools.product(
            range(inst.n_hosts), repeat=inst.n_nodes)
        if inst.fits(np.array(assign))), default=None)


@hypothesis.settings(deadline=None, max_examples=60)
@hypothesis.given(capped())
def test_plans_are_those_of_enumeration_and_never_beat_a_cap(problem):
    try:
        found, free = plan(problem), plan(without(problem))
    except exception.PlacementInfeasible:
        return
    assert found.hosts == free.hosts and found.cct_s >= free.cct_s
    assert found.cct_s == pytest.approx(enumerated_s(problem))
    assert free.lower_bound_s <= found.lower_bound_s <= found.cct_s
    for one, cct_s, free_s in zip(problem.coflows, found.coflow_cct_s,
                                  free.coflow_cct_s, strict=True):
        alone_s = least_s(problem, list(one.matrix.rows()))
        assert cct_s >= max(free_s, alone_s * (1 - 1e-9))
    if found.cct_s > free.cct_s:
        assert found.bottleneck.startswith('cap of ') and found.gap == 0
    else:
        assert found.bottleneck == free.bottleneck


def pair(flows=((0, 1, GB),), n_coflows=1, **limits):
    """Two VMs, on one host or two; the first one has the caps."""
    return snapshot.PlacementProblem(
        hosts=tuple(cluster.Host(name, (2.0,), 8e9, 8e9) for name in 'ab'),
        vms=(cluster.Vm('vm-3', (1.0,), **limits),
             cluster.Vm('vm-4', (1.0,))),
        coflows=tuple(coflow.Coflow.from_flows(f'c{i}', 2, flows)
                      for i in range(n_coflows)))


@pytest.mark.parametrize('limits, flows, bottleneck', [
    ({'egress_cap_bps': 2e9}, [(0, 1, GB)], 'cap of vm-3, 2 Gbit/s out'),
    ({'ingress_cap_bps': 2e9}, [(1, 0, GB)], 'cap of vm-3, 2 Gbit/s in'),
    ({'ingress_cap_bps': 2e9, 'egress_cap_bps': 1e9},
     [(1, 0, GB), (0, 1, GB / 4)], 'cap of vm-3, 2 Gbit/s in')])
def test_a_cap_holds_on_one_host_too(limits, flows, bottleneck):
    problem = pair(flows, **limits)
    found = plan(problem)
    assert len(set(found.hosts)) == 1
    assert (found.cct_s, found.lower_bound_s, found.gap) == (4, 4, 0)
    assert found.coflow_cct_s == (4,) and found.bottleneck == bottleneck
    assert {ranked.cct_s for ranked in planner.rank_hosts(
        problem, found, 0)} == {4}


def test_a_cap_that_decides_nothing_is_not_named():
    found = plan(pair(ingress_cap_bps=1e3))
    assert found.cct_s == 0 and found.bottleneck == 'none'
    assert caps.slowest(pair()) == (0, '')


def test_coflows_wait_at_a_cap_for_those_before_them():
    found = plan(pair(n_coflows=2, egress_cap_bps=2e9))
    assert found.cct_s == 8 and found.coflow_cct_s == (4, 8)


@pytest.mark.parametrize('n_coflows, expected_s', [(1, 3), (2, 7)])
def test_a_burst_passes_beside_the_cap(n_coflows, expected_s):
    """Once, however many coflows there are."""
    found = plan(pair(n_coflows=n_coflows, egress_cap_bps=2e9,
                      egress_burst_bytes=GB / 4))
    assert found.cct_s == found.lower_bound_s == pytest.approx(expected_s)
    assert max(found.coflow_cct_s) == pytest.approx(expected_s)
    free = plan(pair(egress_cap_bps=2e9, egress_burst_bytes=GB))
    assert free.bottleneck != 'cap of vm-3, 2 Gbit/s out'
    other = plan(pair(egress_cap_bps=2e9, ingress_burst_bytes=GB))
    assert other.cct_s == pytest.approx(4)


def test_explanations_double_a_cap():
    problem = pair(egress_cap_bps=2e9)
    (reason,) = [reason for reason in counterfactuals.explain(
        problem, plan(problem), 1, budgets.unlimited()).reasons
        if reason.kind == 'rate']
    assert reason.subject == 'cap of vm-3, 2 Gbit/s out'
    assert (reason.cct_s, reason.instead_of_s) == (2, 4)
    assert counterfactuals.with_twice(
        problem, 'cap of vm-4, 2 Gbit/s out') is None


@pytest.mark.parametrize('doubled', range(3))
def test_one_cap_is_doubled_and_all_else_stays(doubled):
    vms = tuple(cluster.Vm(f'vm-{i}', (1.0,), egress_cap_bps=1e9 + i,
                           ingress_cap_bps=2e9) for i in range(3))
    problem = problems.fig_1_problem(vms=vms)
    twice = dataclasses.replace(vms[doubled], ingress_cap_bps=4e9)
    assert counterfactuals.with_twice(
        problem, f'cap of vm-{doubled}, 2 Gbit/s in') == (
            dataclasses.replace(problem, vms=tuple(
                twice if i == doubled else vm for i, vm in enumerate(vms))))


@pytest.mark.parametrize('way', caps.WAYS)
@pytest.mark.parametrize('rate_bps', [-1.0, math.nan])
def test_no_rate_is_refused(way, rate_bps):
    with pytest.raises(exception.Invalid, match=f'vm-3.{way}'):
        plan(pair(**{way: rate_bps}))


def test_a_matrix_is_read_once_for_the_caps_of_all_vms(monkeypatch):
    """A group of hundreds of VMs has a hundred thousand flows."""
    n_vms, calls = 20, []
    passing = caps._passing
    monkeypatch.setattr(caps, '_passing', lambda *args: (
        calls.append(args), passing(*args))[1])
    problem = snapshot.PlacementProblem((), tuple(
        cluster.Vm(f'v{i}', (1.0,), egress_cap_bps=8.0, ingress_cap_bps=4.0)
        for i in range(n_vms)), (coflow.Coflow.from_flows('c', n_vms, [
            (i, i + 1, 1.0 + i) for i in range(n_vms - 1)]),))
    assert caps.slowest(problem) == (
        2 * (n_vms - 1), f'cap of v{n_vms - 1}, 4 bit/s in')
    assert len(calls) == 2
