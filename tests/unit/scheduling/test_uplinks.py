# SPDX-License-Identifier: Apache-2.0

"""Uplinks above the hosts: nobody gets more than they carry."""

import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from tests.unit import rows
from virtco import scheduling
from virtco.model import cluster
from virtco.model import live
from virtco.model import uplinks
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_and_rates as scheduler
from virtco.scheduling import policies
from virtco_lab.sim import simulation

HOSTS = tuple(f'h{i}' for i in range(8))
#: Racks of 3, 2 and 1 host, the first two in a pod; two hosts at the core.
LEAF_OF = dict(zip(HOSTS, ('a', 'a', 'a', 'b', 'b', 'c')))


def tree_of(rates):
    return cluster.Tree(tuple(
        cluster.Subtree(name, out_bps, in_bps,
                        'p' if name in 'ab' else None, level)
        for (name, level), (out_bps, in_bps) in zip(
            (('a', 'rack'), ('b', 'rack'), ('c', 'rack'), ('p', 'pod')),
            rates)), LEAF_OF)


def inside(name):
    """The hosts below a subtree."""
    return {host for host, leaf in LEAF_OF.items()
            if leaf == name or (name == 'p' and leaf in 'ab')}


@st.composite
def situations(draw):
    rate = st.sampled_from([0.0, 0.3, 0.7, 1.0, 1.9, math.inf])
    tree = tree_of([(draw(rate), draw(rate)) for _ in range(4)])
    ports = np.array([[draw(st.sampled_from([0.5, 1.0, 3.0])) for _ in HOSTS]
                      for _ in range(2)])
    pairs = st.sampled_from([(a, b) for a in HOSTS for b in HOSTS])
    coflows = [live.LiveCoflow(
        f'c{i}', rows.columns(
            (*pair, draw(st.floats(0, 1e6)))
            for pair in draw(st.lists(pairs, max_size=8, unique=True))),
        arrival_s=draw(st.floats(0, 10)),
        weight=draw(st.sampled_from([0.5, 1.0, 4.0])),
        n_flows=draw(st.integers(1, 20)))
        for i in range(draw(st.integers(0, 5)))]
    return coflows, tree, live.Ports(HOSTS, *ports, uplinks.of(
        tree, HOSTS, *ports))


def passed(tree, rates):
    """Rate out of and into each subtree, by name."""
    found = {}
    for one in tree.subtrees:
        hosts = inside(one.name)
        found[one.name] = (
            sum(r.rate_bps for r in rates
                if r.src_host in hosts and r.dst_host not in hosts),
            sum(r.rate_bps for r in rates
                if r.dst_host in hosts and r.src_host not in hosts))
    return found


@hypothesis.settings(deadline=None, max_examples=examples.count(150))
@hypothesis.given(situations(), st.sampled_from(sorted(policies.POLICIES)),
                  st.sampled_from([math.inf, 5.0]))
def test_rates_fit_uplinks_and_conserve_work(situation, policy, theta_s):
    coflows, tree, ports = situation
    answer = scheduling.schedule(coflows, ports, policy=policy, now_s=10.0,
                                 theta_s=theta_s)
    left_of = {item.coflow_id: item.flows.remaining_bytes for item in coflows}
    rates = [rate for item in answer.coflows for rate, left_bytes in zip(
        rows.rates(item.flow_rates), left_of[item.coflow_id])
        if rate.src_host != rate.dst_host
        and left_bytes >= scheduler.NOTHING_BYTES]
    eps = 1e-6
    through = passed(tree, rates)
    full = set()
    for one in tree.subtrees:
        out_bps, in_bps = through[one.name]
        assert out_bps <= one.uplink_out_bps * (1 + eps) + eps
        assert in_bps <= one.uplink_in_bps * (1 + eps) + eps
        if out_bps >= one.uplink_out_bps * (1 - eps) - eps:
            full.add((one.name, 'out'))
        if in_bps >= one.uplink_in_bps * (1 - eps) - eps:
            full.add((one.name, 'in'))
    for port, left in zip(rows.ports(ports), rows.ports(answer.left)):
        sent = sum(r.rate_bps for r in rates if r.src_host == port.host)
        got = sum(r.rate_bps for r in rates if r.dst_host == port.host)
        assert sent <= port.egress_bps * (1 + eps)
        assert got <= port.ingress_bps * (1 + eps)
        assert left.egress_bps == pytest.approx(port.egress_bps - sent,
                                                abs=eps)
        if sent >= port.egress_bps * (1 - eps):
            full.add((port.host, 'out'))
        if got >= port.ingress_bps * (1 - eps):
            full.add((port.host, 'in'))
    for rate in rates:
        path = {(rate.src_host, 'out'), (rate.dst_host, 'in')}
        for one in tree.subtrees:
            sides = (rate.src_host in inside(one.name),
                     rate.dst_host in inside(one.name))
            if sides == (True, False):
                path.add((one.name, 'out'))
            elif sides == (False, True):
                path.add((one.name, 'in'))
        assert path & full


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(situations(), st.sampled_from(sorted(policies.POLICIES)))
def test_uplinks_that_carry_everything_change_nothing(situation, policy):
    coflows, _tree, ports = situation
    wide = live.Ports(HOSTS, ports.egress_bps, ports.ingress_bps, uplinks.of(
        tree_of([(1e3, 1e3)] * 4), HOSTS, ports.egress_bps,
        ports.ingress_bps))
    assert wide.uplinks is uplinks.NONE
    bare = live.Ports(HOSTS, ports.egress_bps, ports.ingress_bps)
    answers = [scheduling.schedule(coflows, some, policy=policy, now_s=10.0)
               for some in (wide, bare)]
    found = [[(item.coflow_id, item.predicted_end_s, rows.rates(
        item.flow_rates)) for item in answer.coflows] for answer in answers]
    assert found[0] == found[1]


def test_what_is_left_of_uplinks_goes_to_the_next_tier():
    """As the controller schedules: the busy ones, then the idle ones."""
    tree = tree_of([(1.0, math.inf)] + [(math.inf, math.inf)] * 3)
    ports = live.Ports(HOSTS, np.ones(8), np.ones(8), uplinks.of(
        tree, HOSTS, np.ones(8), np.ones(8)))
    first, second = (live.LiveCoflow(name, rows.columns([(src, dst, 1e6)]),
                                     arrival_s=0.0)
                     for name, src, dst in (('x', 'h0', 'h6'),
                                            ('y', 'h1', 'h7')))
    made = scheduling.schedule([first], ports, now_s=0.0)
    after = scheduling.schedule([second], made.left, now_s=0.0)
    assert made.coflows[0].flow_rates.rate_bps.tolist() == [1.0]
    assert after.coflows[0].flow_rates.rate_bps.tolist() == [0.0]
    assert made.coflows[0].remaining_cct_s == pytest.approx(8e6)


def test_the_time_of_a_coflow_counts_its_uplink():
    """Three senders of a rack at 4:1 take four times as long as inside."""
    tree = tree_of([(0.75, 0.75)] + [(math.inf, math.inf)] * 3)
    ports = live.Ports(HOSTS, np.ones(8), np.ones(8), uplinks.of(
        tree, HOSTS, np.ones(8), np.ones(8)))
    flows = rows.columns((src, dst, 1e6) for src, dst in (
        ('h0', 'h3'), ('h1', 'h4'), ('h2', 'h5')))
    item = live.LiveCoflow('x', flows, arrival_s=0.0)
    answer = scheduling.schedule([item], ports, now_s=0.0)
    assert answer.coflows[0].remaining_cct_s == pytest.approx(4 * 8e6)


@pytest.mark.parametrize('policy', ['mrtf', 'sebf', 'fifo'])
def test_the_simulator_keeps_to_uplinks(policy):
    """Two coflows over one uplink of half a port's rate."""
    above = uplinks.Uplinks(np.array([[0], [0], [-1], [-1]]),
                            np.array([0.5, 2.0]))
    demands = [fabric_model.Demand(np.array([i]), np.array([2 + i]),
                                   np.array([1.0 + i]), np.ones(1))
               for i in range(2)]
    sim = simulation.Simulation(np.ones(8), simulation.Config(policy=policy),
                                demands, above)
    sim.start(0)
    sim.start(1)
    sim.run()
    assert sorted(sim.completion_s()) == pytest.approx([2.0, 6.0])
    grown = simulation.Simulation(np.ones(8), simulation.Config(
        policy=policy), (), above)
    for index in grown.add(demands):
        grown.start(index)
    grown.run()
    assert sorted(grown.completion_s()) == pytest.approx([2.0, 6.0])
