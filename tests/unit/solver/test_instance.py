# SPDX-License-Identifier: Apache-2.0

"""Arrays of small problems, and names of what they number."""

import numpy as np
import pytest

from tests.unit.solver import problems
from virtco import exception
from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import budget as budgets
from virtco.solver.model import instance as instances


def build(budget=None, **changes):
    return instances.build(problems.fig_1_problem(**changes), budget)


def vms(*pins, need=1.0):
    return tuple(cluster.Vm(f'vm{j}', (need,), pin)
                 for j, pin in enumerate(pins))


def test_pinned_nodes_do_not_move():
    assert build(vms=vms(None, 'h0', None)).movable.tolist() == [0, 2]
    assert build(vms=vms('h1', 'h0', 'h2')).movable.tolist() == []


def test_ports_have_names():
    pairs = {(f'h{a}', f'h{b}'): 8.0 for a in range(3) for b in range(3)
             if a != b}
    inst = build(pair_rate_bps=pairs)
    assert [inst.port_name(port) for port in range(15)] == [
        'h0 egress', 'h1 egress', 'h2 egress', 'h0 ingress', 'h1 ingress',
        'h2 ingress', *(f'h{a}->h{b}' for a in range(3) for b in range(3))]
    tree = cluster.Tree(
        (cluster.Subtree('a', 1.0, 1.0), cluster.Subtree('b', 1.0, 1.0)),
        {'h0': 'a', 'h1': 'b', 'h2': 'b'})
    inst = build(tree=tree)
    levels = [one.level for one in inst.uplinks.subtrees]
    assert [inst.port_name(port) for port in range(6, 10)] == [
        f'{levels[0]} a up', f'{levels[1]} b up', f'{levels[0]} a down',
        f'{levels[1]} b down']
    # Row 1: which uplink is above each host, by its port out.
    assert inst.port_out.tolist() == [[0, 1, 2], [6, 7, 7]]
    assert [behind for _row, behind in inst.ways()] == [3, 2]


def test_a_pair_that_is_not_told_is_as_slow_as_its_slower_end():
    inst = build(pair_rate_bps={('h0', 'h2'): 64.0}, hosts=tuple(
        cluster.Host(f'h{m}', (2.0,), *rates)
        for m, rates in enumerate(((8.0, 2.0), (4.0, 16.0), (32.0, 1.0)))))
    assert inst.s_per_byte[6:].reshape(3, 3).tolist() == [
        [4.0, 1.0, 0.125], [4.0, 2.0, 8.0], [4.0, 0.5, 8.0]]


@pytest.mark.parametrize('free, need, fits', [
    (2.0, 1.0, True), (1.0, 0.5, True), (1.0, 0.6, False),
    (0.5, 0.26, False), (0.0, 0.5, False), (0.0, 0.0, True),
    (1.0, 0.5 + 4e-10, True), (1.0, 0.5 + 4e-9, False),
    (0.01, 0.005 + 4e-10, True), (1e6, 5e5 + 4e-4, True)])
def test_two_fit_on_a_host(free, need, fits):
    inst = build(vms=vms(None, None, None, need=need), coflows=(),
                 hosts=(cluster.Host('h0', (free,), 8.0, 8.0),
                        cluster.Host('h1', (9e9,), 8.0, 8.0)))
    if need <= free:
        assert inst.fits(np.array([0, 0, 1])) is fits
    else:
        assert not inst.allowed[:, 0].any()
    assert inst.fits(np.array([1, 1, 1]))
    assert not inst.fits(np.array([1, -1, 1]))


def test_pinned_and_excluded_hosts_are_no_others():
    inst = build(vms=vms('h0', None, None), excluded_hosts=frozenset(['h2']))
    assert inst.fits(np.array([0, 0, 1]))
    assert not inst.fits(np.array([1, 1, 0]))
    assert not inst.fits(np.array([0, 1, 2]))


def test_hosts_that_are_not_needed_are_dropped_for_a_search():
    hosts = tuple(cluster.Host(f'h{m}', (1.0,), 8.0 - m, 8.0)
                  for m in range(9))
    problem = problems.fig_1_problem(hosts=hosts)
    inst = instances.build(problem, budgets.unlimited())
    assert inst.host_index.tolist() == [0, 1, 2] and inst.movable.size == 3
    assert build(hosts=hosts).n_hosts == 9
    assert instances.build(problem, budgets.Budget(
        budgets.Counter(), 0.0)).n_hosts >= 3


def test_vms_without_hosts_are_refused():
    with pytest.raises(exception.PlacementInfeasible, match='no hosts'):
        build(hosts=())
    assert build(hosts=(), vms=(), coflows=()).n_hosts == 0


def test_parts_of_a_byte_take_time():
    assert instances.times_s(np.array([0.5, 0.0, 2.0]), np.array(
        [4.0, np.inf, np.inf])).tolist() == [2.0, 0.0, np.inf]


def test_flows_of_one_pair_are_one_and_those_within_none():
    group = snapshot.ServerGroup(snapshot.GroupPolicy.AFFINITY, (0, 1))
    inst = build(server_groups=(group,), coflows=(
        coflow.Coflow.from_flows('c', 3, [
            (0, 1, 5.0), (0, 2, 1.0), (1, 2, 0.5), (2, 0, 0.25)]),))
    (src, dst, size_bytes), = inst.arcs
    assert (src.tolist(), dst.tolist()) == ([0, 1], [1, 0])
    assert size_bytes.tolist() == [1.5, 0.25]


def test_dropped_hosts_hold_up_who_is_behind_them():
    """A running coflow waits at a host that nobody else needs."""
    hosts = tuple(cluster.Host(f'h{m}', (2.0,), 8.0, 8.0) for m in range(5)
                  ) + (cluster.Host('slow', (2.0,), 1.0, 1.0),)
    active = (snapshot.ActiveCoflow('r', (('slow', 3.0),), (('h0', 1.0),)),)
    inst = build(budgets.unlimited(), hosts=hosts, active=active)
    assert 5 not in inst.host_index.tolist()
    assert inst.floor_s.tolist() == [0.0, 24.0]
    assert inst.active_cct_s.tolist() == [24.0]
    assert build(hosts=hosts, active=active).floor_s.tolist() == [0.0, 0.0]
