# SPDX-License-Identifier: Apache-2.0

"""The kernel of rates against the same rules over lists, in plain Python."""

import dataclasses
import math

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from tests import examples
from virtco.fluid import run_kernels
from virtco.model import uplinks as uplinks_model
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import policies
from virtco.scheduling import rate_kernel
from virtco.scheduling import rater_kernel
from virtco_lab.sim import demands as demand_model
from virtco_lab.sim import simulation

FULL = 1e-9
HEAD_SHARE = 0.5
#: So many flows keep their order, also those between the same ports.
SORTED = 16


@dataclasses.dataclass
class Flow:
    """:ivar path: names of ports: out and in of hosts, up and down of racks.
    """

    coflow: int
    path: tuple
    bits: float
    weight: float
    rate_bps: float = 0.0


class Plain:
    """Ports and flows that are left, and what is handed out so far."""

    def __init__(self, cap_bps, flows, n_coflows):
        self.cap_bps = cap_bps
        self.left_bps = dict(cap_bps)
        self.flows = [[one for one in flows if one.coflow == c and one.bits]
                      for c in range(n_coflows)]
        self.loads = [{port: sum(one.bits for one in some if port in one.path)
                       for one in some for port in one.path}
                      for some in self.flows]

    def is_full(self, port):
        return self.left_bps[port] <= FULL * self.cap_bps[port]

    def is_served(self, flow):
        return not any(map(self.is_full, flow.path))

    def alone_s(self, c):
        return max([load / self.cap_bps[port] if self.cap_bps[port]
                    else math.inf for port, load in self.loads[c].items()],
                   default=0.0)

    def take(self, c, pace):
        """Each flow of the coflow gets its bits times the pace."""
        for one in self.flows[c]:
            one.rate_bps += pace * one.bits
        for port, load in self.loads[c].items():
            self.left_bps[port] = max(0.0, self.left_bps[port] - pace * load)

    def guarantee(self, order, floors):
        for c in order:
            pace = min([floors[c], *(self.left_bps[port] / load for port, load
                                     in self.loads[c].items())])
            if self.flows[c] and pace > 0:
                self.take(c, pace)

    def reserve(self, some, most, room):
        users = {port: max(1, sum(port in self.loads[c] for c in some))
                 for port in self.cap_bps}
        for c in some:
            pace = min([min(
                min(most, room / users[port]) * self.cap_bps[port],
                self.left_bps[port]) / load
                for port, load in self.loads[c].items()], default=0.0)
            if pace > 0:
                self.take(c, pace)

    def madd(self, order):
        for c in order:
            if self.flows[c] and not any(map(self.is_full, self.loads[c])):
                self.take(c, min(self.left_bps[port] / load for port, load
                                 in self.loads[c].items()))

    def weighted_fair(self, order, weights):
        rising = [c for c in order if 0 < self.alone_s(c) < math.inf]
        while rising:
            speed = {c: weights[c] / self.alone_s(c) for c in rising}
            asked = {port: sum(self.loads[c].get(port, 0.0) * speed[c]
                               for c in rising) for port in self.cap_bps}
            step = min(self.left_bps[port] / bps for port, bps
                       in asked.items() if bps)
            for c in rising:
                self.take(c, step * speed[c])
            rising = [c for c in rising
                      if not any(map(self.is_full, self.loads[c]))]

    def fill(self, some, weight_of, most=math.inf):
        rising, level = [one for one in some if self.is_served(one)], 0.0
        while rising and level < most:
            asked = {port: sum(weight_of(one) for one in rising
                               if port in one.path) for port in self.cap_bps}
            step = min(most - level, *(
                self.left_bps[port] / bps for port, bps in asked.items()
                if bps))
            level += step
            for one in rising:
                one.rate_bps += step * weight_of(one)
            for port, bps in asked.items():
                self.left_bps[port] = max(0.0, self.left_bps[port]
                                          - step * bps)
            rising = [one for one in rising if self.is_served(one)]

    def fill_greedily(self, order):
        for c in order:
            for one in self.flows[c]:
                if self.is_served(one):
                    rate_bps = min(self.left_bps[port] for port in one.path)
                    one.rate_bps += rate_bps
                    for port in one.path:
                        self.left_bps[port] -= rate_bps


def plainly(plain, order, n_lifted, sharing, backfill, horizon_s, trickle,
            weights, floors):
    plain.guarantee(order, floors)
    everything = [one for c in order for one in plain.flows[c]]
    if sharing == policies.SHARE_FLOWS:
        return plain.fill(everything, lambda one: one.weight)
    if sharing == policies.SHARE_IN_ORDER:
        for c in order:
            plain.fill(plain.flows[c], lambda one: one.weight)
        return None
    if n_lifted > 1:
        plain.reserve(order[:n_lifted], math.inf, 1.0)
    if sharing == policies.SHARE_COFLOWS:
        plain.weighted_fair(order, weights)
    elif sharing == policies.SHARE_MADD:
        if trickle and len(order) > 1:
            plain.reserve(order[1:], trickle, 1.0 - HEAD_SHARE)
        plain.madd(order)
    if backfill == policies.BACKFILL_GREEDY:
        plain.fill_greedily(order)
    elif backfill == policies.BACKFILL_MAX_MIN:
        plain.fill(everything, lambda one: one.weight)
    elif backfill == policies.BACKFILL_IN_ORDER:
        for most in (1.0 / horizon_s, math.inf) if horizon_s else (math.inf,):
            for c in order:
                plain.fill(plain.flows[c], lambda one: one.bits, most)
    return None


@st.composite
def situations(draw, hosts=(0, 1, 2, 3), n_hosts=4, sizes=(1, 2, 3, 5, 8)):
    """Two racks, whose uplinks limit, and a host at the core."""
    racks = [0, 0, 1, -1]
    is_flat = n_hosts > 4 or draw(st.booleans())
    rates = st.sampled_from([1.0, 1.0, 2.0, 2.0, 4.0, 0.5, 0.5, 3.0, 1.0, 0.0])
    above = uplinks_model.NONE if is_flat else uplinks_model.Uplinks(
        np.array(racks)[:, None], np.array([draw(rates) for _ in range(4)]))
    cap = np.array([draw(rates) if i % n_hosts in hosts else 1.0
                    for i in range(2 * n_hosts)])
    cap_bps = {('out' if i < n_hosts else 'in', i % n_hosts): bps
               for i, bps in enumerate(cap.tolist())}
    if not is_flat:
        cap_bps |= {('up', 0): above.cap_bps[0], ('up', 1): above.cap_bps[1],
                    ('down', 0): above.cap_bps[2],
                    ('down', 1): above.cap_bps[3]}
    host = st.sampled_from(hosts)
    flows = []
    coflows = draw(st.lists(st.lists(st.tuples(
        host, host, st.sampled_from(sizes), st.sampled_from([1.0, 0.5, 3.0])),
        max_size=5), min_size=1, max_size=4).filter(
            lambda some: sum(map(len, some)) <= SORTED))
    for c, some in enumerate(coflows):
        for src, dst, bits, weight in sorted(some, key=lambda row: row[:2]):
            up, down = ((-1, -1) if is_flat or racks[src] == racks[dst]
                        else (racks[src], racks[dst]))
            flows.append(Flow(c, (
                ('out', src), ('in', dst),
                *([('up', up)] if up >= 0 else []),
                *([('down', down)] if down >= 0 else [])), bits, weight))
    ended = [draw(st.integers(0, 3)) == 0 for _ in flows]
    order = draw(st.permutations(range(len(coflows))))
    return cap, above, cap_bps, flows, ended, list(order)


def agree(situation, has_sets, n_lifted, sharing, backfill, horizon_s=0.0,
          trickle=0.0, scale=1.0, weights=None, floors=None):
    """Rate the situation both ways."""
    cap, above, cap_bps, flows, ended, order = situation
    n = len(order)
    weights, floors = weights or [1.0] * n, floors or [0.0] * n
    fabric = demand_model.fabric_of(cap, [fabric_model.Demand(*(
        np.array(column) for column in (
            [one.path[0][1] for one in some], [one.path[1][1] for one in some],
            [one.bits / scale for one in some], [one.weight for one in some])))
        for some in ([one for one in flows if one.coflow == c]
                     for c in range(n))], above)
    fabric = fabric_model.resized(fabric, np.where(
        ended, 0.0, fabric.base))._replace(scale=np.full(n, scale))
    rater = rater_kernel.Rater(fabric, has_sets)
    np.asarray(rater.floor)[:] = floors
    alone_s = np.zeros(n)
    order_kernel.bottlenecks(rater, alone_s)
    for _ in range(2):  # Each allocation begins anew.
        rate_kernel.allocate(
            rater, np.array(order), n_lifted, sharing, backfill, horizon_s,
            trickle, np.array(weights), alone_s)
    for one, has_ended in zip(flows, ended):
        one.bits, one.rate_bps = 0.0 if has_ended else one.bits, 0.0
    plain = Plain(cap_bps, flows, n)
    assert alone_s.tolist() == pytest.approx([
        plain.alone_s(c) for c in range(n)])
    plainly(plain, order, n_lifted, sharing, backfill, horizon_s, trickle,
            weights, floors)
    found_bps = fabric.base * np.repeat(rater.pace, np.diff(fabric.flow_ptr))
    np.add.at(found_bps, rater.extra_flow[:rater.n_extra],
              rater.extra_rate[:rater.n_extra])
    assert found_bps.tolist() == pytest.approx(
        [one.rate_bps for one in flows], abs=1e-7)
    assert np.asarray(rater.residual).tolist() == pytest.approx(
        list(plain.left_bps.values()), abs=1e-7)
    # Nobody is listed for nothing.
    assert (np.asarray(rater.extra_rate)[:rater.n_extra] > 0).all()


def by_hand(*rows, cap=(1, 1, 1, 1, 1, 1, 1, 1)):
    """A situation without racks.

    :param rows: coflow, hosts, bits, whether the flow has ended.
    """
    flows = [Flow(c, (('out', src), ('in', dst)), bits, 1.0)
             for c, src, dst, bits, _ in rows]
    return (np.array(cap, float), uplinks_model.NONE, {
        ('out' if i < 4 else 'in', i % 4): float(bps)
        for i, bps in enumerate(cap)}, flows, [row[-1] for row in rows],
        list(range(1 + rows[-1][0])))


@pytest.mark.parametrize('has_sets', [False, True])
def test_starving_coflows_share_the_ports_at_which_they_meet(has_sets):
    """They meet at host 1; what has ended is at no port, not at a dead one."""
    agree(by_hand((0, 0, 1, 8, False), (0, 2, 3, 1, True),
                  (1, 2, 0, 4, True), (1, 2, 1, 1, False),
                  (1, 2, 3, 8, False), cap=(1, 1, 1, 1, 0, 1, 1, 1)),
          has_sets, 2, policies.SHARE_MADD, policies.BACKFILL_NONE)


def test_a_coflow_rises_on_where_another_has_reached_its_port():
    agree(by_hand((0, 0, 1, 5, False), (1, 2, 3, 5, False)), False, 0,
          policies.SHARE_COFLOWS, policies.BACKFILL_NONE, weights=[1.0, 3.0])


def test_a_sender_fills_one_receiver_after_the_other():
    agree(by_hand((0, 3, 3, 8, False), (1, 0, 1, 1, False),
                  (1, 0, 2, 1, False), (1, 3, 1, 1, False),
                  cap=(4, 1, 1, 1, 1, 1, 2, 1)),
          True, 0, policies.SHARE_MADD, policies.BACKFILL_GREEDY)


def test_without_madd_flows_go_as_fast_as_they_can():
    """MADD would keep the second flow at half of its ports."""
    situation = by_hand((0, 0, 1, 8, False), (0, 2, 3, 4, False),
                        (1, 2, 0, 4, False))
    agree(situation, True, 0, policies.SHARE_GREEDY, policies.BACKFILL_GREEDY)
    assert [one.rate_bps for one in situation[3]] == [1.0, 1.0, 0.0]


def test_what_a_bound_of_rates_leaves_is_handed_out_next():
    """One flow reaches the bound after a port of another is full."""
    agree(by_hand((0, 0, 1, 8, False), (0, 2, 3, 1, False),
                  (0, 3, 0, 1, False), cap=(1, 1, 1, 4, 4, 0.5, 1, 0.1625)),
          False, 0, policies.SHARE_MADD, policies.BACKFILL_IN_ORDER,
          horizon_s=3.0)


@pytest.mark.parametrize('trickle', [0.2, 0.4])
def test_the_head_of_a_queue_keeps_half_of_each_port(trickle):
    agree(by_hand((0, 0, 1, 5, False), (1, 0, 2, 8, False),
                  (2, 0, 3, 8, False)),
          False, 0, policies.SHARE_MADD, policies.BACKFILL_NONE,
          trickle=trickle)


def test_a_sender_has_receivers_in_two_words_of_a_set():
    n = 66
    cap_bps = {(way, host): 1.0 for way in ('out', 'in') for host in range(n)}
    cap_bps['in', 0] = 0.5
    flows = [Flow(0, (('out', 2), ('in', dst)), bits, 1.0)
             for dst, bits in ((0, 8), (64, 1))]
    agree((np.array(list(cap_bps.values())), uplinks_model.NONE, cap_bps,
           flows, [False, False], [0]), True, 0, policies.SHARE_MADD,
          policies.BACKFILL_GREEDY)


WEIGHTS = st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=5, max_size=5)
FLOORS = st.lists(st.sampled_from([0.0, 0.0, 0.01, 0.125, 9.0]), min_size=5,
                  max_size=5)


@hypothesis.settings(deadline=None, max_examples=examples.count(400))
@hypothesis.given(situations(), st.data())
def test_rates_are_those_of_the_plain_rules(situation, data):
    n = len(situation[-1])
    backfill = data.draw(st.integers(0, 3))
    agree(situation,
          backfill == policies.BACKFILL_GREEDY or data.draw(st.booleans()),
          data.draw(st.integers(0, n)),
          data.draw(st.sampled_from([0, 0, 1, 2, 3, 4])), backfill,
          data.draw(st.sampled_from([0.0, 0.3, 1.0, 2.0, 8.0])),
          data.draw(st.sampled_from([0.0, 0.03, 0.4])),
          weights=data.draw(WEIGHTS)[:n], floors=data.draw(FLOORS)[:n])


@hypothesis.settings(deadline=None, max_examples=examples.count(60))
@hypothesis.given(situations(), WEIGHTS)
def test_what_was_sent_in_proportion_is_in_the_scale(situation, weights):
    agree(situation, False, 0, policies.SHARE_COFLOWS,
          policies.BACKFILL_NONE, scale=0.25,
          weights=weights[:len(situation[-1])])


@hypothesis.settings(deadline=None, max_examples=examples.count(150))
@hypothesis.given(situations((0, 1, 63, 64, 65), 66), st.integers(0, 3))
def test_sets_of_ports_have_words_of_64(situation, n_lifted):
    agree(situation, True, min(n_lifted, len(situation[-1])),
          policies.SHARE_MADD, policies.BACKFILL_GREEDY)


@hypothesis.settings(deadline=None, max_examples=examples.count(80))
@hypothesis.given(situations((0, 1, 64, 65), 66), st.floats(0.5, 4.0))
def test_sets_of_ports_follow_flows_that_end_and_come_back(situation, step_s):
    """As a simulation goes on they are those of a fabric laid out anew."""
    cap, _, _, flows, _, order = situation
    sim = simulation.Simulation(
        np.maximum(cap, 0.5), simulation.Config(),
        [fabric_model.Demand(*(np.array(column) for column in (
            [one.path[0][1] for one in some], [one.path[1][1] for one in some],
            [float(one.bits) for one in some], [1.0] * len(some))))
            for some in ([one for one in flows if one.coflow == c]
                         for c in order)])
    fabric = sim.fabric
    first = fabric.base.copy(), fabric.load.copy(), fabric.alive.copy()

    def agrees():
        found = []
        for rater in (sim.rater, rater_kernel.Rater(fabric)):
            rate_kernel.allocate(
                rater, np.array(order), 0, policies.SHARE_MADD,
                policies.BACKFILL_GREEDY, 0.0, 0.0, np.ones(len(order)),
                np.ones(len(order)))
            found.append([np.asarray(column).tolist() for column in (
                rater.residual, rater.pace,
                rater.extra_flow[:rater.n_extra],
                rater.extra_rate[:rater.n_extra])])
        return found[0] == found[1]

    for c in order:
        sim.start(c)
    for _ in range(4):
        sim.run(sim.now_s + step_s)
        assert agrees()
    sim.run()
    for c in order:
        run_kernels.release(sim.rater, sim.run_of, c, *first)
        assert agrees()
