# SPDX-License-Identifier: Apache-2.0

"""The topology's uplinks above the hosts, with their rates."""

from collections.abc import Callable
from collections.abc import Mapping
import dataclasses

from virtco.model import cluster
from virtco.model import uplinks
from virtco.state import schedule_input
from virtco.topology import resolution
from virtco.topology import tree


class Above:
    """The tree above the hosts with its present rates.

    :param plane: tells the plane that carries the coflows, if any.
    :param default_share: share of each uplink that coflows leave to other
        traffic.
    :param unknown_bps: rate of a host of the topology of which nothing is
        known.
    """

    def __init__(self, plane: Callable[[], tree.Plane | None],
                 default_share: float, unknown_bps: float):
        self._plane = plane
        self._left = 1 - default_share
        self._unknown_bps = unknown_bps
        self._seen: tuple[tree.Plane | None, schedule_input.Hosts | None] = (
            None, None)
        self._tree = cluster.Tree()
        self._uplinks = uplinks.NONE
        self._poor: Mapping[str, tuple[float, float]] = {}

    def set_poor(self, rates_bps: Mapping[str, tuple[float, float]]) -> None:
        """Set the rates of uplinks that carry less than the topology says.

        :param rates_bps: out of and into subtrees by name, in bits on the
            wire.
        """
        self._poor = dict(rates_bps)
        self._seen = None, None

    def nominal(self, hosts: schedule_input.Hosts) -> cluster.Tree:
        """Return the tree with the topology's rates."""
        plane = self._plane()
        # Hosts that never reported have no known rates and are left out.
        return cluster.Tree() if plane is None else resolution.resolved(
            plane, {host.name: (host.egress_bps, host.ingress_bps)
                    for host in hosts if host.egress_bps > 0},
            self._unknown_bps)

    def tree(self, hosts: schedule_input.Hosts) -> cluster.Tree:
        """Return the tree with the rates for all traffic together, in bits on
        the wire.
        """
        self._refresh(hosts)
        return self._tree

    def uplinks(self, hosts: schedule_input.Hosts) -> uplinks.Uplinks:
        """Return the rates of :meth:`tree` for coflows, as arrays.

        It is the same object for the same hosts.
        """
        self._refresh(hosts)
        return self._uplinks

    def _refresh(self, hosts: schedule_input.Hosts) -> None:
        """Compute the tree's rates again if topology or hosts changed."""
        plane = self._plane()
        if self._seen[0] is plane and self._seen[1] is hosts:
            return
        self._tree = limited(self.nominal(hosts), self._poor)
        self._uplinks = uplinks.NONE if plane is None else uplinks.of(
            scaled(self._tree, self._left), hosts.names, hosts.egress_bps,
            hosts.ingress_bps)
        self._seen = plane, hosts


def limited(found: cluster.Tree, most_bps: Mapping[str, tuple[float, float]]
            ) -> cluster.Tree:
    """Return the tree with no uplink above its found rate."""
    if not most_bps:
        return found
    return cluster.Tree(tuple(
        one if one.name not in most_bps else dataclasses.replace(
            one,
            uplink_out_bps=min(one.uplink_out_bps, most_bps[one.name][0]),
            uplink_in_bps=min(one.uplink_in_bps, most_bps[one.name][1]))
        for one in found.subtrees), found.leaf_of)


def scaled(found: cluster.Tree, factor: float) -> cluster.Tree:
    """Return the tree with every rate times ``factor``."""
    return cluster.Tree(tuple(
        dataclasses.replace(one, uplink_out_bps=one.uplink_out_bps * factor,
                            uplink_in_bps=one.uplink_in_bps * factor)
        for one in found.subtrees), found.leaf_of)
