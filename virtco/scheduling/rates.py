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

"""From an order to rates: the one place where bandwidth is handed out."""

import numpy as np

from virtco import jit
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import kernels
from virtco.scheduling import policies

#: FIFO+ leaves the head of the queue at least this fraction of each port.
HEAD_SHARE = 0.5


@jit.compiled
def allocate(fabric: fabric_model.Fabric, order: np.ndarray, n_lifted: int,
             sharing: int, backfill: int, trickle: float,
             weights: np.ndarray, alone_s: np.ndarray, residual: np.ndarray,
             pace: np.ndarray, flows: np.ndarray, extra_flow: np.ndarray,
             extra_rate: np.ndarray) -> int:
    """Rate every coflow of ``order``; returns the length of the extra list.

    :param fabric: the coflows.
    :param order: coflow indices, the first n_lifted of them starving: they
        share the fabric among themselves before anyone else is served.
    :param sharing: policies.SHARE_…
    :param backfill: policies.BACKFILL_…
    :param trickle: share of each port for each coflow behind the head.
    :param weights: of each coflow, for SHARE_COFLOWS.
    :param alone_s: each coflow's remaining time alone on the fabric.
    :param residual: out, bps left of each port, shape (P,).
    :param pace: out, see kernels, shape (C,).
    :param flows: scratch, shape (F,).
    :param extra_flow: out, shape (F + P,).
    :param extra_rate: out, bps on top of the pace, shape (F + P,).
    """
    residual[:] = fabric.cap
    pace[:] = 0.0
    if sharing == policies.SHARE_FLOWS:
        n_open = kernels.open_flows(fabric, order, residual, flows)
        return kernels.fill_max_min(fabric, flows, n_open, residual,
                                    extra_flow, extra_rate, 0)
    if sharing == policies.SHARE_IN_ORDER:
        n_extra = 0
        for i in range(len(order)):
            n_open = kernels.open_flows(fabric, order[i:i + 1], residual,
                                        flows)
            if n_open > 0:
                n_extra = kernels.fill_max_min(
                    fabric, flows, n_open, residual, extra_flow, extra_rate,
                    n_extra)
        return n_extra
    if n_lifted > 1:
        users = kernels.users_per_port(fabric, order[:n_lifted])
        kernels.reserve(fabric, order[:n_lifted],
                        1.0 / np.maximum(1, users), residual, pace)
    if sharing == policies.SHARE_COFLOWS:
        kernels.weighted_fair(fabric, order, weights, alone_s, residual, pace)
    else:
        if trickle > 0.0 and len(order) > 1:
            users = kernels.users_per_port(fabric, order[1:])
            room = (1.0 - HEAD_SHARE) / np.maximum(1, users)
            kernels.reserve(fabric, order[1:], np.minimum(trickle, room),
                            residual, pace)
        kernels.madd(fabric, order, residual, pace)
    if backfill == policies.BACKFILL_GREEDY:
        return kernels.backfill_greedy(fabric, order, residual, extra_flow,
                                       extra_rate)
    if backfill == policies.BACKFILL_MAX_MIN:
        n_open = kernels.open_flows(fabric, order, residual, flows)
        return kernels.fill_max_min(fabric, flows, n_open, residual,
                                    extra_flow, extra_rate, 0)
    return 0
