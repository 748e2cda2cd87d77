# SPDX-License-Identifier: Apache-2.0

"""Rates of flows that have a guarantee and borrow by rank. Pure.

Each flow first gets its guarantee. A sender lends what is left of its link
strictly by rank: flows of the lowest rank number have all they can take before
the next rank has anything. Flows of one rank share by weight. Two models of
the receiver's link:

* :func:`in_order_bps`: its bandwidth is given as the sender's is, guarantees
  first and then by rank.
* :func:`over_tcp_bps`: TCP shares it equally, whatever the ranks. A sender
  offers by rank, the receivers cut the offers, and the sender offers what
  that frees to the next ranks: a fixed point.
"""

import dataclasses

import numpy as np

# Of a link's rate: how exactly a full one is full.
_TOLERANCE = 1e-3
_MAX_STEPS = 60
# From then on receivers move half the way, lest they move in circles.
_DAMPED_STEPS = 15
# A link with less of its rate left has nothing to lend.
_FULL = 1e-9
# Smallest weight of a flow.
_LEAST_WEIGHT = 1e-6


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Demands:
    """Flows between hosts, arrays of shape (n_flows,).

    :ivar src: index of the sender's link.
    :ivar dst: index of the receiver's link.
    :ivar guarantee_bps: first of all.
    :ivar ceil_bps: never more.
    :ivar rank: 0 borrows first.
    :ivar weight: positive, among flows of one rank at one link.
    """

    src: np.ndarray
    dst: np.ndarray
    guarantee_bps: np.ndarray
    ceil_bps: np.ndarray
    rank: np.ndarray
    weight: np.ndarray


def in_order_bps(flows: Demands, egress_bps: np.ndarray,
                 ingress_bps: np.ndarray) -> np.ndarray:
    """Compute rates where both ends of a flow keep guarantees and ranks.

    Nothing is left idle: a flow below its ceil has a full link at one end.
    Guarantees that do not fit are shared in proportion to them.

    :param egress_bps: rate of each sender's link, shape (n_hosts,).
    :param ingress_bps: likewise of receivers.
    """
    n_hosts = len(egress_bps)
    ends = np.stack((flows.src, n_hosts + flows.dst))
    capacity = np.concatenate((egress_bps, ingress_bps)).astype(float)
    room, full = capacity.copy(), _FULL * capacity
    rates = _fill(ends, np.maximum(flows.guarantee_bps, _LEAST_WEIGHT),
                  np.minimum(flows.guarantee_bps, flows.ceil_bps), room, full)
    wish = flows.ceil_bps - rates
    order = np.argsort(flows.rank, kind='stable')
    starts = np.flatnonzero(np.diff(flows.rank[order], prepend=-1))
    for some in np.split(order, starts[1:]):
        is_open = (room[ends[:, some]] > full[ends[:, some]]).all(axis=0)
        some = some[is_open]
        if len(some):
            rates[some] += _fill(ends[:, some], flows.weight[some],
                                 wish[some], room, full)
    return rates


def _fill(ends: np.ndarray, weight: np.ndarray, most_bps: np.ndarray,
          room_bps: np.ndarray, full_bps: np.ndarray) -> np.ndarray:
    """Raise rates together in proportion to the weights (max-min).

    :param ends: both links of each flow, shape (2, n_flows).
    :param most_bps: at which a flow stops.
    :param room_bps: of each link; what is given is taken off.
    :param full_bps: a link with less room stops its flows.
    """
    n_links = len(room_bps)
    rates = np.zeros(len(weight))
    rising = most_bps > 0
    # Each round stops a flow or fills a link.
    while rising.any():
        pace = np.where(rising, weight, 0.0)
        load = np.bincount(ends[0], pace, n_links) + np.bincount(
            ends[1], pace, n_links)
        used = load > 0
        step = min(float((room_bps[used] / load[used]).min()),
                   float(((most_bps - rates)[rising] / weight[rising]).min()))
        rates += step * pace
        room_bps -= step * load
        # Rounding leaves a flow a little below its limit.
        rising &= most_bps - rates > _FULL * most_bps
        rising &= (room_bps > full_bps)[ends].all(axis=0)
    np.maximum(room_bps, 0.0, out=room_bps)
    return rates


def over_tcp_bps(flows: Demands, egress_bps: np.ndarray,
                 ingress_bps: np.ndarray, level_bps: np.ndarray
                 ) -> tuple[np.ndarray, np.ndarray]:
    """Compute rates where senders keep ranks and receivers' links are TCP's.

    :param level_bps: rate that no flow to a receiver exceeds, where the
        search begins, shape (n_hosts,).
    :returns: rates of the flows and the levels found.
    """
    senders = _Senders(flows, egress_bps)
    n_hosts = len(ingress_bps)
    n_flows = np.bincount(flows.dst, minlength=n_hosts)
    least_bps = ingress_bps / np.maximum(1, n_flows)
    ones = np.ones(len(flows.src))
    level_bps = np.clip(level_bps, least_bps, ingress_bps)
    for step in range(_MAX_STEPS):
        most_bps = level_bps[flows.dst]
        rates = senders.offers_bps(most_bps)
        load = np.bincount(flows.dst, rates, n_hosts)
        over = load > (1 + _TOLERANCE) * ingress_bps
        under = ((load < (1 - _TOLERANCE) * ingress_bps)
                 & (level_bps < ingress_bps))
        if not (over.any() or under.any()):
            break
        wanted = np.where(over, _levels_bps(flows.dst, rates, ones,
                                            ingress_bps), level_bps)
        n_bound = np.bincount(
            flows.dst, rates >= (1 - _TOLERANCE) * most_bps, n_hosts)
        with np.errstate(divide='ignore', invalid='ignore'):
            wanted[under] += ((ingress_bps - load) / n_bound)[under]
        if step >= _DAMPED_STEPS:
            wanted = (wanted + level_bps) / 2
        level_bps = np.clip(wanted, least_bps, ingress_bps)
    # Where the search ended early, too, no link carries more than it can.
    return (rates * np.minimum(1.0, ingress_bps / np.maximum(load, 1.0))[
        flows.dst], level_bps)


class _Senders:
    """Offers of senders to their flows, by guarantee and rank."""

    def __init__(self, flows: Demands, egress_bps: np.ndarray):
        self._flows, self._egress_bps = flows, egress_bps
        n_ranks = int(flows.rank.max(initial=0)) + 1
        # A group is the flows of one rank at one sender; by sender and rank.
        keys, self._group = np.unique(flows.src * n_ranks + flows.rank,
                                      return_inverse=True)
        self._sender = keys // n_ranks
        self._first = np.searchsorted(self._sender,
                                      np.arange(len(egress_bps)))

    def offers_bps(self, most_bps: np.ndarray) -> np.ndarray:
        """Return the rate that the senders offer each flow, shape (F,).

        :param most_bps: limit by the receiver of each flow, shape (F,).
        """
        flows, n_groups = self._flows, len(self._sender)
        most_bps = np.minimum(most_bps, flows.ceil_bps)
        rates = np.minimum(flows.guarantee_bps, most_bps)
        given = np.bincount(flows.src, rates, len(self._egress_bps))
        rates *= np.minimum(1.0, self._egress_bps / np.maximum(
            given, 1.0))[flows.src]
        room = np.maximum(0.0, self._egress_bps - given)
        wish = np.maximum(0.0, most_bps - rates)
        # Rate that the lower ranks leave to each group.
        wishes = np.concatenate(([0.0], np.cumsum(np.bincount(
            self._group, wish, n_groups))))
        before = wishes[:-1] - wishes[self._first][self._sender]
        left = np.maximum(0.0, room[self._sender] - before)
        level = _levels_bps(self._group, wish, flows.weight, left)
        found: np.ndarray = rates + np.minimum(
            wish, flows.weight * level[self._group])
        return found


def _levels_bps(group: np.ndarray, wish_bps: np.ndarray, weight: np.ndarray,
                room_bps: np.ndarray) -> np.ndarray:
    """Compute the rate per weight that cuts each group's wishes to fit.

    :param group: of each flow, an index of room_bps.
    :returns: shape of room_bps; inf where all wishes fit.
    """
    ratio = wish_bps / weight
    order = np.lexsort((ratio, group))
    group, wish, weight = group[order], wish_bps[order], weight[order]
    first = np.searchsorted(group, group)
    # Before each flow those of its group that wish less per weight.
    wishes = np.cumsum(wish) - wish
    weights = np.cumsum(weight) - weight
    total = np.bincount(group, weight, len(room_bps))
    level = ((room_bps[group] - (wishes - wishes[first]))
             / (total[group] - (weights - weights[first])))
    found = np.full(len(room_bps), np.inf)
    # The first flow that is cut tells; of equal indices the last one stays.
    is_cut = np.flatnonzero(ratio[order] > level)[::-1]
    found[group[is_cut]] = np.maximum(0.0, level[is_cut])
    return found
