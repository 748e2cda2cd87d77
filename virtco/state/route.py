# SPDX-License-Identifier: Apache-2.0

"""Where the flows of a coflow run, by the hosts of its members. Pure."""

from collections.abc import Mapping
import dataclasses
import functools
import math

import numpy as np

from virtco.model import live
from virtco.model import matrix as matrices

NO_FLOWS = np.empty(0, np.intp)


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A VM of a group: its uuid, its host, and whether it runs there.

    :ivar caps_bps: the most that it sends, and receives, by its flavor.
    :ivar limits_bps: likewise by Neutron's rules for its ports.
    :ivar ips: addresses that Nova told; they change no route.
    """

    instance_uuid: str | None
    host: str | None
    running: bool
    caps_bps: tuple[float, float] = (math.inf, math.inf)
    limits_bps: tuple[float, float] = (math.inf, math.inf)
    ips: tuple[str, ...] = dataclasses.field(default=(), compare=False)


class Route:
    """Where the flows of a coflow run, while nothing moves.

    :param members: the coflow's.
    :param running: only VMs that run; False also takes planned ones.
    :ivar pairs: (source host, destination host) of flows between hosts, in
        the order of their first flows.
    :ivar pair_of: index into ``pairs`` per flow, -1 for flows that stay in a
        host or whose VMs are not placed.
    :ivar crossing: indices of the flows between hosts.
    :ivar crossing_pair: pair of each of them.
    :ivar local: indices of the flows that stay in a host.
    :ivar is_complete: the VMs of all flows are placed.
    """

    def __init__(self, matrix: matrices.Matrix, members: Mapping[int, Member],
                 running: bool):
        number_of: dict[str, int] = {}
        host_of = np.full(matrix.n_vms, -1)
        for index, member in members.items():
            if member.host is not None and (member.running or not running):
                host_of[index] = number_of.setdefault(member.host,
                                                      len(number_of))
        hosts = list(number_of)
        src = host_of[np.asarray(matrix.src)]
        dst = host_of[np.asarray(matrix.dst)]
        is_placed = (src >= 0) & (dst >= 0)
        self.crossing = crossing = np.flatnonzero(is_placed & (src != dst))
        keys, first, entry = np.unique(
            src[crossing] * len(hosts) + dst[crossing], return_index=True,
            return_inverse=True)
        order = np.argsort(first)
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        self.crossing_pair = rank[entry]
        self.pair_of = np.full(len(matrix), -1)
        self.pair_of[crossing] = self.crossing_pair
        self.pairs = live.Pairs(
            (hosts[key // len(hosts)], hosts[key % len(hosts)])
            for key in keys[order].tolist())
        self.local = np.flatnonzero(is_placed & (src == dst))
        self.is_complete = bool(is_placed.all())

    def per_pair(self, flow_bytes: np.ndarray) -> np.ndarray:
        """Sum values of flows per pair of hosts, shape (n_pairs,)."""
        sums: np.ndarray = np.bincount(
            self.crossing_pair, flow_bytes[self.crossing], len(self.pairs))
        return sums

    def flows(self, src: str, dst: str | None) -> np.ndarray:
        """Return the indices of the flows from a host to one other or to any.
        """
        return self._flows.get((src, dst), NO_FLOWS)

    @functools.cached_property
    def _flows(self) -> Mapping[tuple[str, str | None], np.ndarray]:
        """Flows of each pair of hosts and of each source."""
        pair_of = self.crossing_pair
        ends = np.cumsum(np.bincount(pair_of, minlength=len(self.pairs)))
        found: dict[tuple[str, str | None], np.ndarray] = dict(zip(
            self.pairs, np.split(
                self.crossing[np.argsort(pair_of, kind='stable')],
                ends[:-1])))
        for src, at in self.pairs.of_source.items():
            found[src, None] = np.sort(np.concatenate(
                [found[self.pairs[i]] for i in at]))
        return found


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class CappedFlows:
    """Parts of a coflow's flows between hosts, while nothing moves.

    :ivar crossing: indices of the flows between hosts.
    :ivar part_of: part of each of them.
    :ivar pair_of: pair of each part, shape (n_parts,).
    :ivar passed: see :class:`virtco.model.live.Capped`.
    """

    crossing: np.ndarray
    part_of: np.ndarray
    pair_of: np.ndarray
    passed: np.ndarray
    rates_bps: Mapping[live.Cap, float]

    def shown(self, flow_bytes: np.ndarray) -> live.Capped:
        """Share the bytes of each pair among its parts."""
        left_bytes = np.bincount(self.part_of, flow_bytes[self.crossing],
                                 len(self.pair_of))
        pair_bytes = np.bincount(self.pair_of, left_bytes)
        return live.Capped(self.pair_of,
                           left_bytes / pair_bytes[self.pair_of],
                           self.passed, self.rates_bps)
