# SPDX-License-Identifier: Apache-2.0

"""Flows of a coflow that sent and then fell silent; queued bytes. Pure.

A flow that ends before its hinted size would keep its share of MADD, which
others may not borrow at its receiver. So a silent flow gets no rate of its own
until it sends again. Its class stays, with the least rate, and its next bytes
or a queue in its class end the silence.
"""

import collections
from collections.abc import Callable
from collections.abc import Set

import numpy as np

from virtco.model import live
from virtco.scheduling import endings
from virtco.state import byte_counters
from virtco.state import route as routes
from virtco.wire import reports

# Host -> the time of its last report; -inf: there was none.
Heard = Callable[[str], float]


def never(_: str) -> float:
    """Return -inf, as for a host that never reported."""
    return -np.inf


class Queues:
    """Bytes of one coflow that wait at the hosts, as last reported.

    :ivar whole_bytes: host -> in all, above 0.
    """

    def __init__(self) -> None:
        self.whole_bytes: dict[str, float] = {}
        # Bytes by host and destination, where the destination has a class of
        # its own and a queue.
        self._children_bytes: dict[str, dict[str, float]] = {}

    def __bool__(self) -> bool:
        return bool(self.whole_bytes)

    def keep(self, hosts: Set[str]) -> None:
        """Forget bytes that wait elsewhere: no VM is there to send them."""
        for host in self.whole_bytes.keys() - hosts:
            self.take(host, None)

    def take(self, host: str, counters: reports.CoflowCounters | None
             ) -> float:
        """Set the bytes that wait at a host; return the bytes that did before.

        :param counters: counters with a queue; None: there is none.
        """
        before = self.whole_bytes.pop(host, 0.0)
        self._children_bytes.pop(host, None)
        if counters is not None:
            self.whole_bytes[host] = counters.backlog_bytes
            children = self._children_bytes[host] = {}
            for child in counters.destinations:
                if child.backlog_bytes:  # of two classes for a while
                    children[child.host] = (children.get(child.host, 0.0)
                                            + child.backlog_bytes)
        return before

    def of_pairs(self, pairs: live.Pairs, shares: np.ndarray) -> np.ndarray:
        """Return the bytes that wait for each pair, shape (n_pairs,).

        :param shares: shares by which the bytes of a host are divided among
            its destinations where it does not tell of these, shape (n_pairs,).
        """
        told = np.array([self._children_bytes.get(src, {}).get(dst, 0.0)
                         for src, dst in pairs])
        rest = {src: max(0.0, whole_bytes
                         - sum(self._children_bytes[src].values()))
                for src, whole_bytes in self.whole_bytes.items()}
        total: dict[str, float] = collections.defaultdict(float)
        for (src, _), share in zip(pairs, shares.tolist()):
            total[src] += share
        found: np.ndarray = told + shares * [
            rest.get(src, 0.0) / total[src] if total[src] > 0 else 0.0
            for src, _ in pairs]
        return found

    def are_empty(self, pairs: live.Pairs) -> np.ndarray:
        """Return whether no bytes wait for a pair's destination, (n_pairs,).

        What a host counts beside the classes of destinations may be for each
        of them: they have no such classes, or it does not tell of those.
        """
        elsewhere = {
            host for host, whole_bytes in self.whole_bytes.items()
            if whole_bytes > sum(self._children_bytes[host].values())}
        return np.array([
            src not in elsewhere
            and dst not in self._children_bytes.get(src, ())
            for src, dst in pairs], bool)


def silent_bytes(counting: byte_counters.CoflowProgress, route: routes.Route,
                 queues: Queues, moved_s: float, heard_s: Heard,
                 rules: endings.Rules) -> np.ndarray | None:
    """Return the bytes left per pair of hosts, shape (n_pairs,), of flows that
    sent and then were silent for ``quiet_s`` while others of their coflow
    sent.

    Their source must say so: its reports came since, and nothing waits there
    for that destination. Who never began may begin at any moment.

    :param moved_s: time at which any of them last sent.
    :param heard_s: time of a host's last report.
    :returns: None where there are none of them.
    """
    is_silent = counting.rested_s(moved_s) >= rules.quiet_s
    if not is_silent.any():
        return None
    until_s = np.minimum(moved_s, [heard_s(src) for src, _ in route.pairs])
    until_s[~queues.are_empty(route.pairs)] = -np.inf
    # The last place is of flows that are in no pair.
    is_silent &= (
        (counting.rested_s(np.append(until_s, -np.inf)[route.pair_of])
         >= rules.quiet_s)
        & (counting.sent_bytes >= np.minimum(
            rules.start_bytes,
            (1 - rules.done_fraction) * counting.sizes_bytes)))
    if not is_silent.any():
        return None
    return route.per_pair(
        np.where(is_silent, counting.left_bytes(), 0.0))
