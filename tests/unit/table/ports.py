# SPDX-License-Identifier: Apache-2.0

"""Ports that TCP shares, of a few links."""

import math

import numpy as np

from virtco.model import uplinks as uplinks_model
from virtco.table import borrowing


def of(links, hosts, egress_bps=(), above=uplinks_model.NONE):
    """The receivers' links alone, unless other ports are slow, too.

    :param hosts: all, with a link or without one.
    :param egress_bps: rate that the network carries of each host's link.
    """
    known = {link.host: link.ingress_bps for link in links}
    ingress_bps = [known.get(host, math.inf) for host in hosts]
    free = [math.inf] * len(hosts)
    return borrowing.Ports(
        {host: i for i, host in enumerate(hosts)},
        np.array([*free, *ingress_bps, *[math.inf] * len(above.cap_bps)]),
        np.array([*(egress_bps or free), *ingress_bps, *above.cap_bps]),
        above)


def sent(laid, kept):
    """:param kept: ids of coflows whose rates others leave free."""
    return {one.coflow_id: np.full(len(one.pairs), math.inf)
            for one in laid.coflows if one.coflow_id in kept}


def lending(laid, ranks, kept=(), hosts=('h0', 'h1', 'h2')):
    return borrowing.Lending(
        laid, of(laid.links, hosts), ranks, sent(laid, kept)).ceil_bps
