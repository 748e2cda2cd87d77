# SPDX-License-Identifier: Apache-2.0

"""Limits of unmanaged traffic, from reports and the coflows' rates. Pure."""

from collections.abc import Mapping

import numpy as np

from virtco.state import schedule_input as known
from virtco.table import layouts
from virtco.table import unmanaged
from virtco.wire import edge_policy


def limit(snapshot: known.Snapshot, laid: layouts.Layouts,
          child_bps: np.ndarray) -> Mapping[str, edge_policy.Unmanaged]:
    """Return the limits of unmanaged traffic for every reporting host.

    :param child_bps: rates of the coflows' classes, laid out as in ``laid``.
    """
    if not snapshot.senders and len(laid.peers) > 1:
        return laid.unlimited
    options = snapshot.options
    busy = {coflow.live.coflow_id for coflow in snapshot.coflows
            if coflow.is_busy(snapshot.now_s, options.quiet_s)}
    is_busy = np.array([one.coflow_id in busy for one in laid.coflows],
                       np.bool_)
    promised_bps = np.bincount(
        laid.peer_of,
        child_bps * is_busy[laid.coflow_of][laid.class_of],
        len(laid.peers))
    promised = dict(zip(laid.peers, promised_bps.tolist()))
    told = unmanaged.limits(
        _left_bps(snapshot, promised), snapshot.senders)
    if len(promised) > 1:
        return {**laid.unlimited, **told}
    return {link.host: unmanaged.nothing_limited(
        link.default_rate_bps if len(promised) > (link.host in promised)
        else link.egress_bps) for link in laid.links} | told


def _left_bps(snapshot: known.Snapshot, promised: Mapping[str, float]
              ) -> dict[str, float]:
    """Return the rate that coflows leave of each link where they arrive.

    :param promised: to the coflows that send now; what the others are
        promised is free until they do.
    """
    least = snapshot.options.default_share
    return {link.host: max(least * link.ingress_bps,
                           (1 - least) * link.ingress_bps
                           - promised[link.host])
            for link in snapshot.hosts.links if link.host in promised}
