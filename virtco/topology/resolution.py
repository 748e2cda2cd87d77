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
    parents = plane.parents()
    carried: dict[str, Rates] = {}
    subtrees: list[cluster.Subtree] = []
    # Children before their parents.
    for node in reversed([*plane.walk()]):
        out_bps, in_bps = map(math.fsum, zip(
            (0.0, 0.0),
            *(hosts.get(host, (unknown_bps,) * 2) for host in node.hosts),
            *(carried[child.name] for child in node.children)))
        level = plane.level(node.height())
        up_bps = _rate(out_bps, (node.uplink.up_bps, node.uplink),
                       (level.uplink.up_bps, level.uplink))
        down_bps = _rate(in_bps, (node.uplink.down_bps, node.uplink),
                         (level.uplink.down_bps, level.uplink))
        subtrees.append(cluster.Subtree(
            node.name, up_bps, down_bps, parents.get(node.name), level.name))
        carried[node.name] = min(up_bps, out_bps), min(down_bps, in_bps)
    return cluster.Tree(tuple(subtrees[::-1]), {
        host: node.name for node in plane.walk() for host in node.hosts})


def _rate(below_bps: float, *given: tuple[float | None, tree.Uplink]
          ) -> float:
    """Return the first given rate, or one by oversubscription; else inf."""
    for rate_bps, uplink in given:
        if rate_bps is not None:
            return rate_bps
        if uplink.oversubscription is not None:
            return below_bps / uplink.oversubscription
    return math.inf
