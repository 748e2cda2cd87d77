# SPDX-License-Identifier: Apache-2.0

"""The layouts of all hosts, end to end in a few arrays.

A cloud has thousands of hosts, and between two schedules few of them have
anything new to do. So their classes are rated together and compared together
(:mod:`virtco.table.host_policies`).
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from collections.abc import Set
import dataclasses
import functools

import numpy as np

from virtco.table import coflow_table
from virtco.table import layout
from virtco.table import unmanaged
from virtco.wire import edge_policy

#: Rate of a link that nobody knows, and the least of a class.
UNKNOWN_BPS, LEAST_BPS = 1e13, 8.0


@dataclasses.dataclass(frozen=True, eq=False)
class Layouts:
    """The layout of each link's host, and all their classes and children.

    :ivar coflows: coflows of all classes.
    :ivar new_minors: class numbers of the hosts where they changed.
    """

    links: Sequence[coflow_table.Link]
    of_link: tuple[layout.Layout, ...]
    coflows: tuple[coflow_table.TableCoflow, ...]
    new_minors: Mapping[str, coflow_table.Minors] = dataclasses.field(
        default_factory=dict)

    def holds(self, minors: Mapping[str, coflow_table.Minors],
              is_counted: bool, protect: bool) -> bool:
        """Return whether all layouts stay while their coflows stay."""
        asked = id(minors), is_counted, protect
        known = self.__dict__.get('_holds', {})
        if asked not in known:
            # Kept with the answer, lest others get the id.
            known = self.__dict__['_holds'] = {asked: (minors, all(
                _holds(one, minors, is_counted, protect)
                for one in self.of_link))}
        is_held: bool = known[asked][1]
        return is_held

    @functools.cached_property
    def n_classes(self) -> np.ndarray:
        """Number of classes of each host, shape (n_hosts,)."""
        return np.array([len(some.classes) for some in self.of_link],
                        np.int64)

    @functools.cached_property
    def class_ends(self) -> list[int]:
        """Where the classes of each host begin, and where all end."""
        return [0, *np.cumsum(self.n_classes).tolist()]

    @functools.cached_property
    def child_ends(self) -> list[int]:
        """Index of each host's first child, then the number of children."""
        return [0, *np.cumsum([len(some.peers)
                               for some in self.of_link]).tolist()]

    @functools.cached_property
    def n_children(self) -> np.ndarray:
        """Number of children of each class, shape (n_classes,)."""
        return joined((some.n_children for some in self.of_link), np.int64)

    @functools.cached_property
    def class_of(self) -> np.ndarray:
        """Index of each child's class, shape (n_children,)."""
        found: np.ndarray = np.repeat(np.arange(len(self.n_children)),
                                      self.n_children)
        return found

    @functools.cached_property
    def host_of(self) -> np.ndarray:
        """Index of each class's host, shape (n_classes,)."""
        return np.repeat(np.arange(len(self.of_link)), self.n_classes)

    @functools.cached_property
    def coflow_of(self) -> np.ndarray:
        """Index of each class's coflow, shape (n_classes,)."""
        number = {id(one): i for i, one in enumerate(self.coflows)}
        return np.array([number[id(one)] for some in self.of_link
                         for one in some.classes], np.int64)

    @functools.cached_property
    def pair_of(self) -> np.ndarray:
        """Index of each child among all coflows' pairs, shape (n_children,).
        """
        start = np.cumsum([0, *(len(one.pairs) for one in self.coflows)])
        found: np.ndarray = start[self.coflow_of][self.class_of] + joined(
            (some.places for some in self.of_link), np.int64)
        return found

    @functools.cached_property
    def peers(self) -> tuple[str, ...]:
        """Hosts at which coflows arrive."""
        return tuple(dict.fromkeys(peer for some in self.of_link
                                   for peer in some.peers))

    @functools.cached_property
    def peer_of(self) -> np.ndarray:
        """Index of each child's peer, shape (n_children,)."""
        number = {peer: i for i, peer in enumerate(self.peers)}
        return np.array([number[peer] for some in self.of_link
                         for peer in some.peers], np.int64)

    @functools.cached_property
    def egress_bps(self) -> np.ndarray:
        """Egress rate of each host's link, shape (n_hosts,)."""
        return np.array([link.egress_bps for link in self.links], np.float64)

    @functools.cached_property
    def received_bps(self) -> np.ndarray:
        """Ingress rate of each peer's link by the children towards it, their
        number rounded up to a power of two, shape (n_peers,).

        With each coflow that comes or goes other senders would else have a
        new policy.
        """
        known = {link.host: link.ingress_bps for link in self.links}
        n_to = np.bincount(self.peer_of, minlength=len(self.peers))
        found: np.ndarray = np.array(
            [known.get(peer, UNKNOWN_BPS) for peer in self.peers],
            np.float64) / np.exp2(np.ceil(np.log2(n_to)))
        return found

    @functools.cached_property
    def limit_bps(self) -> np.ndarray:
        """Rate for all classes of a host together, shape (n_hosts,)."""
        return self.egress_bps - np.array(
            [link.default_rate_bps for link in self.links], np.float64)

    @functools.cached_property
    def unlimited(self) -> Mapping[str, edge_policy.Unmanaged]:
        """Limits per host for hosts that send no unmanaged traffic."""
        peers = frozenset(self.peers)
        return {link.host: unmanaged.nothing_limited(
            link.default_rate_bps if len(peers) > (link.host in peers)
            else link.egress_bps) for link in self.links}

    def fitted_bps(self, rate_bps: np.ndarray,
                   min_rate_fraction: float) -> np.ndarray:
        """Return the rate of each child, shape (n_children,): the schedule's,
        or a little where it gives nothing; a host's are scaled down together
        when they exceed its link.

        :param rate_bps: rate of each child.
        :param min_rate_fraction: share of a link for those that the schedule
            gives nothing, of its sender's for all that leave it and of its
            receiver's for all that arrive.
        """
        floor_bps = (self.egress_bps * min_rate_fraction
                     / np.maximum(1, self.n_classes))
        rate_bps = np.maximum(rate_bps, np.minimum(
            (floor_bps[self.host_of] / self.n_children)[self.class_of],
            np.maximum(LEAST_BPS, min_rate_fraction
                       * self.received_bps)[self.peer_of]))
        host_of_child = self.host_of[self.class_of]
        total_bps = np.bincount(host_of_child, rate_bps, len(self.of_link))
        # A link without bandwidth has children without a rate: not 0 / 0.
        factor = self.limit_bps / np.maximum(
            np.maximum(total_bps, self.limit_bps), np.finfo(np.float64).tiny)
        found: np.ndarray = rate_bps * factor[host_of_child]
        return found

    def sends_to(self, hosts: Set[str]) -> np.ndarray:
        """Return whether each host has a child to one of these, (n_hosts,).
        """
        found = np.zeros(len(self.of_link), np.bool_)
        if hosts:
            is_child = np.array([peer in hosts for peer in self.peers],
                                np.bool_)[self.peer_of]
            found[self.host_of[self.class_of[is_child]]] = True
        return found


def joined(arrays: Iterable[np.ndarray], dtype: type = np.float64
           ) -> np.ndarray:
    return np.concatenate([np.zeros(0, dtype), *arrays])


def lay_out(links: Sequence[coflow_table.Link],
            coflows: Sequence[coflow_table.TableCoflow],
            minors: Mapping[str, coflow_table.Minors],
            ranks: Mapping[str, int], now_s: float, grace_s: float, *,
            is_counted: bool = False, protect: bool = False,
            before: Layouts | None = None) -> Layouts:
    """Lay out the coflows; unchanged layouts stay the same objects.

    :param minors: minors by host, as they were taken; where a host's coflows
        changed its new layout has others (``layout.minors``).
    :param is_counted: whether flows are counted without classes.
    :param protect: hosts are told what arrives at them.
    """
    ordered = tuple(sorted(coflows, key=lambda coflow: coflow.coflow_id))
    before = before or Layouts((), (), ())
    if _same(ordered, before.coflows):
        if before.links is links and before.holds(minors, is_counted,
                                                  protect):
            return before
        ordered = before.coflows
    known = {one.host: one for one in before.of_link}
    changed = _touched(ordered, before.coflows)
    senders = coflow_table.by_host(ordered, lambda one: one.places)
    receivers = coflow_table.by_host(
        ordered, lambda one: one.received) if protect else {}

    def assigned(host: str) -> coflow_table.Minors | None:
        """Return the class numbers of a host, in the order of ranks."""
        if is_counted:
            return None
        # Where minors run out, the first coflows have some.
        some = minors.get(host, coflow_table.NO_MINORS).assign(
            coflow_table.wanted_keys(host, sorted(
                senders.get(host, ()),
                key=lambda coflow: ranks[coflow.coflow_id])), now_s, grace_s)
        return some if some.taken else coflow_table.NO_MINORS

    found: list[layout.Layout] = []
    for link in links:
        host = link.host
        one = known.get(host)
        if (one is None or host in changed
                or not _holds(one, minors, is_counted, protect)):
            one = layout.Layout(
                host, senders.get(host, ()), receivers.get(host, ()),
                assigned(host), protect)
        found.append(one)
    return Layouts(links, tuple(found), ordered, {
        one.host: one.minors for one in found
        if one.minors is not None and one.minors is not minors.get(
            one.host, coflow_table.NO_MINORS)})


def _same(some: Sequence[object], others: Sequence[object]) -> bool:
    return len(some) == len(others) and all(
        one is other for one, other in zip(some, others))


def _touched(after: Sequence[coflow_table.TableCoflow],
             before: Sequence[coflow_table.TableCoflow]) -> set[str]:
    """Return the hosts of the coflows that came, went or changed."""
    old, new = ({id(one): one for one in some} for some in (before, after))
    both = old | new
    return {host for i in old.keys() ^ new.keys()
            for host in both[i].pairs.hosts}


def _holds(one: layout.Layout, minors: Mapping[str, coflow_table.Minors],
           is_counted: bool, protect: bool) -> bool:
    """Return whether a layout stays while its coflows stay."""
    if one.protects != protect:
        return False
    if is_counted:
        return one.minors is None
    taken = minors.get(one.host, coflow_table.NO_MINORS)
    return one.is_whole and one.minors is taken
