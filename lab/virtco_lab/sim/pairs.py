# SPDX-License-Identifier: Apache-2.0

"""Per-flow fair sharing of a whole trace, by pairs of ports.

All flows from one port to another have the same rate per weight, so they end
in the order of size / weight: what a pair has served tells who is next. Rates
are found for at most P² / 4 pairs instead of for every flow, which is what
makes fair sharing of a large trace affordable. The answer is that of the
general engine, to which a test holds it.
"""

from typing import NamedTuple

import numpy as np

from virtco.scheduling import fabric as fabric_model


class Pairs(NamedTuple):
    """K pairs of ports, sorted by source; see the fabric for C, F and P.

    :ivar of_flow: pair of each flow, shape (F,).
    :ivar src: egress port of each pair, shape (K,).
    :ivar dst: ingress port of each pair, shape (K,).
    :ivar weight: of the pair's live flows together, shape (K,).
    :ivar n_live: number of its live flows, shape (K,).
    :ivar served: bits per weight so far, shape (K,).
    :ivar head: its live flow that ends first, -1 for none, shape (K,).
    :ivar next: flow after each flow, shape (F,).
    :ivar ends_at: ``served`` at which each flow ends, shape (F,).
    :ivar rate: bps per weight, shape (K,).
    :ivar left: live flows of each coflow, shape (C,).
    """

    of_flow: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    weight: np.ndarray
    n_live: np.ndarray
    served: np.ndarray
    head: np.ndarray
    next: np.ndarray
    ends_at: np.ndarray
    rate: np.ndarray
    left: np.ndarray


def build(fabric: fabric_model.Fabric) -> Pairs:
    """Build the pairs that the fabric's flows use; no flow is live."""
    n_ports, n_flows = len(fabric.cap), len(fabric.base)
    keys = (fabric.port[fabric.src].astype(np.int64) * n_ports
            + fabric.port[fabric.dst])
    pairs, of_flow = np.unique(keys, return_inverse=True)
    src, dst = np.divmod(pairs, n_ports)
    zeros = np.zeros(len(pairs))
    return Pairs(
        of_flow=of_flow.reshape(-1), src=src, dst=dst,
        weight=zeros, n_live=np.zeros(len(pairs), np.int64),
        served=zeros.copy(), head=np.full(len(pairs), -1),
        next=np.full(n_flows, -1), ends_at=np.zeros(n_flows),
        rate=zeros.copy(), left=np.diff(fabric.flow_ptr))
