# SPDX-License-Identifier: Apache-2.0

"""From a plane to the tree that planner and scheduler count on. Pure."""

from collections.abc import Mapping
import math

from virtco.model import cluster
from virtco.topology import tree

# Egress and ingress, bps.
Rates = tuple[float, float]


def resolved(plane: tree.Plane, hosts: Mapping[str, Rates],
             unknown_bps: float) -> cluster.Tree:
    """Compute the rate of every uplink.

    A switch's own rate or oversubscription goes before its level's; a rate
    before an oversubscription; a switch with neither limits nothing. What
    comes from below is what its hosts and its switches' uplinks carry.

    :param hosts: rates that each host can send and receive.
    :param unknown_bps: rate of a host that is not among them, both ways.
    """
    subtrees: list[cluster.Subtree] = []
    leaf_of: dict[str, str] = {}
    for root in plane.roots:
        _resolve(plane, root, None, hosts, unknown_bps, subtrees, leaf_of)
    return cluster.Tree(tuple(subtrees), leaf_of)


def _resolve(plane: tree.Plane, node: tree.Node, parent: str | None,
             hosts: Mapping[str, Rates], unknown_bps: float,
             subtrees: list[cluster.Subtree],
             leaf_of: dict[str, str]) -> Rates:
    """Compute the rates of a node towards its parent and from it."""
    out_bps = in_bps = 0.0
    unknown = unknown_bps, unknown_bps
    for host in node.hosts:
        leaf_of[host] = node.name
        egress_bps, ingress_bps = hosts.get(host, unknown)
        out_bps += egress_bps
        in_bps += ingress_bps
    for child in node.children:
        up_bps, down_bps = _resolve(plane, child, node.name, hosts,
                                    unknown_bps, subtrees, leaf_of)
        out_bps += up_bps
        in_bps += down_bps
    level = plane.level(node.height())
    up_bps = _rate(out_bps, (node.uplink.up_bps, node.uplink),
                   (level.uplink.up_bps, level.uplink))
    down_bps = _rate(in_bps, (node.uplink.down_bps, node.uplink),
                     (level.uplink.down_bps, level.uplink))
    subtrees.append(cluster.Subtree(node.name, up_bps, down_bps, parent,
                                    level.name))
    return min(up_bps, out_bps), min(down_bps, in_bps)


def _rate(below_bps: float, *given: tuple[float | None, tree.Uplink]
          ) -> float:
    """Return the first given rate, or one by oversubscription; else inf."""
    for rate_bps, uplink in given:
        if rate_bps is not None:
            return rate_bps
        if uplink.oversubscription is not None:
            return below_bps / uplink.oversubscription
    return math.inf
