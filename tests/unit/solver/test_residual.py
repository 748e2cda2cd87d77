# SPDX-License-Identifier: Apache-2.0

"""What running coflows leave to the printed method, by hand."""

import math

import pytest

from virtco.model import cluster
from virtco.model import coflow
from virtco.model import snapshot
from virtco.solver import residual as residuals
from virtco.solver.model import instance as instances


def running(name, src, dst, size_bytes):
    return snapshot.ActiveCoflow(name, ((src, size_bytes),),
                                 ((dst, size_bytes),))


def residual(active, rates=((8.0, 16.0), (16.0, 4.0), (8.0, 0.0)),
             tree=cluster.Tree()):
    return residuals.residual(instances.build(snapshot.PlacementProblem(
        tuple(cluster.Host(f'h{m}', (1.0,), *rate)
              for m, rate in enumerate(rates)),
        tuple(cluster.Vm(f'v{j}', (1.0,)) for j in range(2)),
        (coflow.Coflow.from_flows('c', 2, [(0, 1, 1.0)]),), tree, active)))


def rates_of(problem):
    return [(host.egress_bps, host.ingress_bps) for host in problem.hosts]


def test_nobody_leaves_all():
    found = residual(())
    assert rates_of(found) == [(8, 16), (16, 4), (8, 0)]


def test_a_coflow_takes_what_its_slowest_port_gives():
    # Into h1 goes half a byte per second, so out of h0 as much.
    found = residual((running('a', 'h0', 'h1', 5.0),))
    assert not found.active
    assert rates_of(found) == [
        (pytest.approx(4.0), 16), (16, pytest.approx(
            4.0 * residuals.LEAST)), (8, 0)]


def test_the_next_one_has_what_the_first_leaves():
    """The smaller one is first; whoever meets a full port has nothing."""
    small, large = (running('s', 'h1', 'h0', 1.0),
                    running('l', 'h0', 'h1', 5.0))
    blocked = running('b', 'h2', 'h1', 9.0)
    behind = running('c', 'h1', 'h0', 99.0)
    found = residual((blocked, large, behind, small))
    # Small: 2 bytes per second out of h1 and into h0, both then full.
    assert rates_of(found) == [
        (pytest.approx(4.0), pytest.approx(0.016)),
        (pytest.approx(0.016), pytest.approx(0.004)), (8, 0)]
    elsewhere = running('e', 'h8', 'h9', 1.0)
    assert rates_of(residual((elsewhere,))) == [(8, 16), (16, 4), (8, 0)]
    dead = residual((running('d', 'h0', 'h2', 1.0),))
    assert rates_of(dead) == [(8, 16), (16, 4), (8, 0)]


def test_uplinks_are_left_in_part():
    tree = cluster.Tree((cluster.Subtree('a', 4.0, 2.0),
                         cluster.Subtree('idle', math.inf, math.inf)),
                        {'h0': 'a'})
    out, into = running('o', 'h0', 'h1', 1.0), running('i', 'h1', 'h0', 9.0)
    found = residual((out,), ((8.0, 8.0),) * 3, tree)
    assert [(one.name, one.uplink_out_bps, one.uplink_in_bps)
            for one in found.tree.subtrees] == [
        ('a', pytest.approx(0.004), 2.0), ('idle', math.inf, math.inf)]
    assert rates_of(found)[0] == (pytest.approx(4.0), 8)
    found = residual((into,), ((8.0, 8.0),) * 3, tree)
    assert found.tree.subtrees[0].uplink_in_bps == pytest.approx(0.002)
    assert rates_of(found)[:2] == [(8, pytest.approx(6.0)),
                                   (pytest.approx(6.0), 8)]


def test_unlimited_ports_are_left_whole():
    """An uplink may have a limit one way alone; h8 and h9 are elsewhere."""
    tree = cluster.Tree((cluster.Subtree('r', 8.0, math.inf),),
                        {'h0': 'r', 'h8': 'r'})
    found = residual((running('a', 'h9', 'h8', 1.0),
                      running('b', 'h9', 'h0', 4.0)), tree=tree)
    assert rates_of(found) == [
        (8, pytest.approx(16 * residuals.LEAST)), (16, 4), (8, 0)]
    assert found.tree.subtrees[0].uplink_in_bps == math.inf
