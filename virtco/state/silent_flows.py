# SPDX-License-Identifier: Apache-2.0

"""Flows of a coflow that sent and then fell silent. Pure.

A flow that ends before its hinted size would keep its share of MADD, which
others may not borrow at its receiver. So a silent flow gets no rate of its own
until it sends again. Its class stays, with the least rate, and its next bytes
or a queue in its class end the silence.
"""

from collections.abc import Callable

import numpy as np

from virtco.scheduling import endings
from virtco.state import inflight

# Host -> the time of its last report; -inf: there was none.
Heard = Callable[[str], float]


def never(_: str) -> float:
    """Return -inf, as for a host that never reported."""
    return -np.inf


def silent_bytes(tracked: inflight.Tracked, heard_s: Heard,
                 rules: endings.Rules) -> np.ndarray | None:
    """Return the bytes left per pair of hosts, shape (n_pairs,), of flows that
    sent and then were silent for ``quiet_s`` while others of their coflow
    sent.

    Their source must say so: its reports came since, and nothing waits there
    for that destination. Who never began may begin at any moment.

    :param heard_s: time of a host's last report.
    :returns: None where there are none of them.
    """
    counting, route, moved_s = (tracked.counting, tracked.route,
                                tracked.moved_s)
    if tracked.model.is_estimated or moved_s is None:
        return None
    is_silent = counting.rested_s(moved_s) >= rules.quiet_s
    if not is_silent.any():
        return None
    until_s = np.minimum(moved_s, [heard_s(src) for src, _ in route.pairs])
    until_s[~tracked.sending.are_queues_empty(route.pairs)] = -np.inf
    # The last place is of flows that are in no pair.
    is_silent &= (
        (counting.rested_s(np.append(until_s, -np.inf)[route.pair_of])
         >= rules.quiet_s)
        & (counting.sent_bytes >= np.minimum(
            rules.start_bytes,
            (1 - rules.done_fraction) * counting.sizes_bytes)))
    if not is_silent.any():
        return None
    return route.per_pair(
        np.where(is_silent, counting.left_bytes(), 0.0))
