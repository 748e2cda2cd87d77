# SPDX-License-Identifier: Apache-2.0

"""How far classes borrow where no qdisc keeps the coflows' order. Pure.

A host's qdiscs lend its link in that order. TCP shares all other ports: a
receiver's link, the uplink of a rack, and a sender's link where the network
carries less than its speed.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
import functools
import math

import numpy as np

from virtco.model import uplinks as uplinks_model
from virtco.table import layouts

#: Multiple of its sending rate that a coflow may need. It reaches its rate
#: after a few reports, and a coflow that sends single bytes keeps nobody from
#: borrowing.
ROOM_FACTOR = 4.0
#: Least rate up to which a class may borrow, a frame each 100 ms. The kernel
#: charges a frame to its class as time, and the class has to wait for as long
#: even if its coflow has meanwhile become the first.
LEAST_CEIL_BPS = 1.2e5


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Ports:
    """Ports that TCP shares: egress of H hosts, their ingress, G uplinks.

    :ivar number_of: each host's number.
    :ivar first_bps: rate up to which the first coflow at a port may borrow,
        shape (2 H + G,).
    :ivar shared_bps: rate for all coflows, inf at ports that limit none, shape
        (2 H + G,).
    """

    number_of: Mapping[str, int]
    first_bps: np.ndarray
    shared_bps: np.ndarray
    uplinks: uplinks_model.Uplinks = uplinks_model.NONE


class Lending:
    """The order in which classes borrow, and the ports where they meet.

    :param sent_bps: rates of the pairs of coflows for which others leave room,
        by id.
    :param promised: coflows where nobody else borrows. Several that borrow at
        their senders may together fill a port, which TCP shares whatever the
        guarantees.
    :ivar rank: place of each coflow, 0 is served first, shape (n_coflows,).
    :ivar sent_bps: rate at which each child sends, inf where bytes wait, 0 of
        coflows for which nobody makes room, shape (n_children,).
    """

    def __init__(self, laid: layouts.Layouts, ports: Ports,
                 ranks: Mapping[str, int], sent_bps: Mapping[str, np.ndarray],
                 promised: Set[str] = frozenset()):
        self.laid = laid
        self.ports = ports
        self.promised = promised
        self.rank = np.array(
            [ranks[one.coflow_id] for one in laid.coflows], np.int64)
        self.sent_bps = layouts.joined(
            sent_bps[one.coflow_id] if one.coflow_id in sent_bps
            else np.zeros(len(one.pairs)) for one in laid.coflows)[
                laid.pair_of]

    @functools.cached_property
    def passed(self) -> tuple[np.ndarray, np.ndarray]:
        """Children and the shared ports that each passes, equal shapes."""
        laid, number_of = self.laid, self.ports.number_of
        src, dst = (np.array([number_of[host] for host in hosts], np.int64)
                    for hosts in ((link.host for link in laid.links),
                                  laid.peers))
        src = src[laid.host_of[laid.class_of]]
        dst = dst[laid.peer_of]
        start, above = self.ports.uplinks.passed(src, dst)
        each, n_hosts = np.arange(len(src)), len(number_of)
        child = np.concatenate((each, each, np.repeat(each, np.diff(start))))
        port = np.concatenate((src, n_hosts + dst, 2 * n_hosts + above))
        is_shared = self.ports.shared_bps[port] < math.inf
        return child[is_shared], port[is_shared]

    def is_held(self) -> np.ndarray:
        """Return whether each child borrows nothing, shape (n_children,)."""
        laid, (child, port) = self.laid, self.passed
        is_promised = np.array(
            [one.coflow_id in self.promised for one in laid.coflows],
            np.bool_)[laid.coflow_of][laid.class_of]
        found = np.zeros(len(is_promised), np.bool_)
        found[child[np.isin(port, port[is_promised[child]])]] = True
        return found

    def ceil_bps(self, child_bps: np.ndarray, left_bytes: np.ndarray
                 ) -> np.ndarray:
        """Return the rate up to which each child may borrow, (n_children,).

        Coflows that send are *kept*: others leave room for them, as far as
        they may need it. The first one of a port may fill it. Children of
        later ones have parts of what is left of it by what they may need: who
        borrows at one sender fills no port that an earlier coflow needs, and
        takes from none what it is sure of. The rates of the rest are guesses:
        each of them may borrow all that the kept coflows leave. Nobody waits
        for a child that has sent all its bytes.

        :param child_bps: rate of each child.
        :param left_bytes: bytes left of each child.
        """
        laid, ports, (child, port) = self.laid, self.ports, self.passed
        rank = self.rank[laid.coflow_of[laid.class_of[child]]]
        bps, n_ports = child_bps[child], len(ports.shared_bps)
        link_bps = laid.egress_bps[laid.host_of[laid.class_of]]
        needed_bps = np.where(left_bytes < 1, 0.0, np.minimum(
            ROOM_FACTOR * self.sent_bps, link_bps))[child]
        is_kept = needed_bps > 0
        kept_bps = np.bincount(port, np.minimum(bps, needed_bps), n_ports)
        first = np.full(n_ports, math.inf)
        np.minimum.at(first, port[is_kept], rank[is_kept])
        is_after = is_kept & (rank > first[port])
        # A guess is the first where no coflow is kept.
        is_first = ~is_after & (is_kept | (first[port] == math.inf))
        part = np.ones(len(child))
        part[is_after] = needed_bps[is_after] / np.bincount(
            port, needed_bps * is_after, n_ports)[port[is_after]]
        taken_bps = np.where(is_kept & ~is_after, bps, kept_bps[port]
                             + np.where(is_kept, 0.0, bps))
        beyond_bps = part * np.maximum(0.0, np.where(
            is_first, ports.first_bps[port], ports.shared_bps[port])
            - taken_bps)
        most_bps = np.full(len(child_bps), math.inf)
        np.minimum.at(most_bps, child, beyond_bps)
        if self.promised:
            most_bps[self.is_held()] = 0.0
        found: np.ndarray = np.minimum(
            link_bps, np.maximum(child_bps + most_bps, LEAST_CEIL_BPS))
        return found
