# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Limits of unmanaged traffic, from reports and the coflows' rates. Pure."""

from collections.abc import Mapping

import numpy as np

from virtco.know import snapshot as known
from virtco.table import book
from virtco.table import edge_policy
from virtco.table import unmanaged


def limit(snapshot: known.Snapshot, layouts: book.Book,
          child_bps: np.ndarray) -> Mapping[str, edge_policy.Unmanaged]:
    """What every host that reports is told.

    :param child_bps: rates of the coflows' classes, laid out as in the book.
    """
    if not snapshot.senders and len(layouts.peers) > 1:
        return layouts.unlimited
    options = snapshot.options
    busy = {coflow.live.coflow_id for coflow in snapshot.coflows
            if coflow.is_busy(snapshot.now_s, options.quiet_s)}
    is_busy = np.array([one.coflow_id in busy for one in layouts.coflows],
                       np.bool_)
    promised_bps = np.bincount(
        layouts.peer_of,
        child_bps * is_busy[layouts.coflow_of][layouts.class_of],
        len(layouts.peers)) if layouts.peers else np.zeros(0)
    promised = dict(zip(layouts.peers, promised_bps.tolist()))
    told = unmanaged.limits(
        _left_bps(snapshot, promised), snapshot.senders)
    if len(promised) > 1:
        return {**layouts.unlimited, **told}
    return {link.host: unmanaged.nothing_limited(
        link.default_rate_bps if len(promised) > (link.host in promised)
        else link.egress_bps) for link in layouts.links} | told


def _left_bps(snapshot: known.Snapshot, promised: Mapping[str, float]
              ) -> dict[str, float]:
    """What coflows leave of the links on which they arrive.

    :param promised: to the coflows that send now; what the others are
        promised is free until they do.
    """
    least = snapshot.options.default_share
    return {link.host: max(least * link.ingress_bps,
                           (1 - least) * link.ingress_bps
                           - promised[link.host])
            for link in snapshot.hosts.links if link.host in promised}
