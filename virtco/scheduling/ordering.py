# SPDX-License-Identifier: Apache-2.0

"""Order in which coflows are served (VirtCO Algorithm 1). Pure.

Starving coflows go first, then the operators' priority classes, then the
policy's key, then the earlier arrival.

Coflows whose sizes are not believed go by attained service, in queues:
Chowdhury and Stoica, "Efficient Coflow Scheduling Without Prior Knowledge"
(Aalo, SIGCOMM 2015), section 4.2. A coflow begins in the first queue and falls
into the next one at the queue's limit; within a queue the first to arrive goes
first. Here a queue is a *time* on the coflow's slowest port, so that links of
any speed have the same queues, and the limit compares with what a hinted
coflow has left: of sizes with long tails about as much is to come as was sent.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math

import numpy as np

from virtco import units
from virtco.model import live
from virtco.scheduling import fabric as fabric_model
from virtco.scheduling import order_kernel
from virtco.scheduling import own_policy
from virtco.scheduling import policies
from virtco.scheduling import rater_kernel

#: Time on the slowest port after which a coflow leaves the first queue.
FIRST_S = 0.5
#: Ratio of each queue's limit to that of the queue before.
GROWTH = 2.0


def find(coflows: Sequence[live.LiveCoflow], ports: live.Ports,
         index: Mapping[str, int], policy: policies.Policy,
         rater: rater_kernel.Rater, fabric: fabric_model.Fabric,
         alone_s: np.ndarray, lifted: np.ndarray, late: Mapping[str, float]
         ) -> np.ndarray:
    """Return the coflows' indices, the first to be served first, shape (C,).

    :param index: number of each host among the ports.
    :param rater: over the fabric.
    :param fabric: fabric with the bytes that the coflows have left.
    :param alone_s: time of what each has left alone on the fabric, shape (C,).
    :param lifted: whether each starves, shape (C,).
    :param late: time since which periodic coflows go before the others that
        are served by intensity, by id.
    """
    arrival_s = np.array([coflow.arrival_s for coflow in coflows], np.float64)
    weight = np.array([coflow.weight for coflow in coflows], np.float64)
    key = arrival_s.copy()
    if policy.own is not None:
        key = own_policy.places(policy.own, told(coflows, fabric),
                                len(coflows))
    elif policy.key != policies.BY_ARRIVAL:
        key = (alone_s.copy() if policy.key == policies.BY_REMAINING
               else _whole_s(coflows, ports, index, fabric, alone_s))
        for c, coflow in enumerate(coflows):
            if coflow.served is not None:
                key[c] = queue_limit_s(_slowest_s(coflow, coflow.served,
                                                  ports, index))
        if policy.key == policies.BY_REMAINING:
            key /= weight
    level = np.zeros(len(coflows), np.int64)
    if policy.classes:
        level = np.unique(np.array(
            [coflow.priority_class for coflow in coflows], np.int64),
            return_inverse=True)[1].reshape(-1)
    for c in np.flatnonzero(lifted).tolist():
        level[c] = -1
        key[c] = max(coflows[c].served_s, coflows[c].arrival_s)
    order_kernel.round_keys(np.arange(len(coflows)), key)
    if policy.key == policies.BY_REMAINING:
        intensity = _intensities(coflows, ports, index, alone_s, late)
        if intensity.any():
            order_kernel.rank_repeating(np.arange(len(coflows)), level,
                                        alone_s, weight, intensity, key)
    # Ties go to the earlier arrival: the sort is stable.
    order = np.lexsort((arrival_s, key, level)).astype(np.int64)
    if policy.swaps:
        order_kernel.swap_neighbours(rater, order, level, weight)
    return order


def told(coflows: Sequence[live.LiveCoflow], fabric: fabric_model.Fabric
         ) -> list[own_policy.Unfinished]:
    """Describe the coflows to a policy of one's own."""
    arrival_s, weight, sent_bytes = np.array([
        (coflow.arrival_s, coflow.weight, coflow.sent_bytes)
        for coflow in coflows], float).reshape(-1, 3).T
    return own_policy.unfinished(fabric, range(len(coflows)), arrival_s,
                                 weight, sent_bytes)


def queue_limit_s(served_s: float) -> float:
    """Return the limit of the queue that a coflow is in.

    :param served_s: time of what it sent on its slowest port; inf where that
        has no rate left.
    """
    limit_s = FIRST_S
    while limit_s <= served_s and limit_s < math.inf:
        limit_s *= GROWTH
    return limit_s


def _intensities(coflows: Sequence[live.LiveCoflow], ports: live.Ports,
                 index: Mapping[str, int], alone_s: np.ndarray,
                 late: Mapping[str, float]) -> np.ndarray:
    """Return computing per iteration over time on the slowest link (Crux).

    Late ones are above all others, the one that is late for longest first.

    :returns: 0 for coflows that say nothing of computing, shape (C,).
    """
    found = np.zeros(len(coflows))
    behind: list[int] = []
    for c, coflow in enumerate(coflows):
        if coflow.compute_s <= 0 or coflow.served is not None:
            continue
        whole_s = (alone_s[c] if coflow.whole is None
                   else _slowest_s(coflow, coflow.whole, ports, index))
        if whole_s > 0:
            found[c] = coflow.compute_s * coflow.workers / whole_s
        if coflow.coflow_id in late:
            behind.append(c)
    most = found.max(initial=0.0) or 1.0
    behind.sort(key=lambda c: -late[coflows[c].coflow_id])
    for place, c in enumerate(behind, 2):
        found[c] = most * place
    return found


def _whole_s(coflows: Sequence[live.LiveCoflow], ports: live.Ports,
             index: Mapping[str, int], fabric: fabric_model.Fabric,
             alone_s: np.ndarray) -> np.ndarray:
    """Return the time of each whole coflow alone, sent bytes included.

    Where the whole is not given, it stands to the rest as the bits do: MADD
    keeps the flows' proportions.
    """
    left = np.bincount(fabric.owner, fabric.base, len(coflows))
    sent = np.array([max(0.0, coflow.sent_bytes) for coflow in coflows],
                    np.float64) * units.BITS_PER_BYTE
    whole_s: np.ndarray = alone_s * (1 + np.divide(
        sent, left, out=np.zeros(len(coflows)), where=left > 0))
    for c, coflow in enumerate(coflows):
        if coflow.whole is not None:
            whole_s[c] = _slowest_s(coflow, coflow.whole, ports, index)
    return whole_s


def _slowest_s(coflow: live.LiveCoflow, flows: live.Flows, ports: live.Ports,
               index: Mapping[str, int]) -> float:
    """Return the time of the slowest port or cap (VirtCO Eq. 3).

    :param flows: over the coflow's pairs.
    """
    found_s = float(ports.busy_s(flows, index).max(initial=0.0))
    return (found_s if coflow.capped is None
            else max(found_s, *coflow.capped.busy_s(flows).values()))
