# SPDX-License-Identifier: Apache-2.0

"""Per-flow fair sharing of a whole trace, by pairs of ports.

All flows from one port to another have the same rate per weight, so they end
in the order of size / weight: what a pair has served tells who is next. Rates
are found for at most P² / 4 pairs instead of for every flow, which is what
makes fair sharing of a large trace affordable. The answer is that of the
general engine, to which a test holds it.
"""

import numpy as np

from virtco import compiled
from virtco.fluid import pair_kernels
from virtco.scheduling import fabric as fabric_model


def build(fabric: fabric_model.Fabric, left: np.ndarray, end_s: np.ndarray
          ) -> pair_kernels.Sharing:
    """Build the pairs that the fabric's flows use; no flow is live.

    :param left: live flows of each coflow, shape (C,); changed.
    :param end_s: end of each coflow's last flow, shape (C,); changed.
    """
    n_ports, n_flows = len(fabric.cap), len(fabric.base)
    keys = (fabric.port[fabric.src].astype(np.int64) * n_ports
            + fabric.port[fabric.dst])
    pairs, of_flow = np.unique(keys, return_inverse=True)
    src, dst = np.divmod(pairs, n_ports)
    n_pairs = len(pairs)
    return pair_kernels.Sharing(**compiled.views(
        of_flow=of_flow.reshape(-1), src=src, dst=dst,
        weight=np.zeros(n_pairs), n_live=np.zeros(n_pairs, np.int64),
        served=np.zeros(n_pairs), due=np.zeros(n_pairs),
        rate=np.zeros(n_pairs), rising=np.zeros(n_pairs, np.uint8),
        head=np.full(n_pairs, -1), next=np.full(n_flows, -1),
        ends_at=np.zeros(n_flows), left=left, end_s=end_s,
        at=np.zeros(2 * n_pairs, np.int64), start=np.searchsorted(
            np.sort(np.concatenate((src, dst))), np.arange(n_ports)),
        end=np.zeros(n_ports, np.int64), weight_at=np.zeros(n_ports),
        live=np.zeros(n_pairs, np.int64), n_pairs=0, now_s=0.0))
