# SPDX-License-Identifier: Apache-2.0

"""How TCP flows share links that nobody schedules.

Flows with equal windows and without losses have the rates
``window / (delay at the source's link + delay at the destination's)``, where
a link's delay is such that it is full, or nothing. That is proportional
fairness, with the delays as prices (F. Kelly, A. Maulloo and D. Tan, *Rate
control for communication networks*, 1998): a flow that crosses two full links
has less than its max-min share.
"""

import collections.abc

import numpy as np

from virtco import units

# Of a link's rate: how exactly it is filled.
_TOLERANCE = 1e-4
_MAX_STEPS = 5000
_END_S = 1e-9

#: Source and destination link, bytes and coflow of a flow.
Flow = tuple[int, int, float, int]


def completion_s(flows: collections.abc.Sequence[Flow], n_coflows: int,
                 rates_bps: collections.abc.Sequence[float]) -> list[float]:
    """Compute CCTs of coflows whose flows start together; 0 without flows.

    :param rates_bps: of each link as payload.
    """
    ends_s = np.zeros(n_coflows)
    if not flows:
        return ends_s.tolist()
    src, dst, size, coflow = (np.array(column) for column in zip(*flows))
    capacity = np.array(rates_bps, float)
    left_bits = size * float(units.BITS_PER_BYTE)
    prices = np.ones(len(capacity))
    now_s = 0.0
    active = np.arange(len(flows))
    while len(active):
        # Prices of the step before are close to those after one flow's end.
        rates, prices = shares_bps(src[active], dst[active], capacity, prices)
        lasting_s = left_bits[active] / rates
        step_s = lasting_s.min()
        now_s += step_s
        left_bits[active] -= rates * step_s
        ended = lasting_s <= step_s + _END_S
        ends_s[coflow[active[ended]]] = now_s
        active = active[~ended]
    return ends_s.tolist()


def shares_bps(src: np.ndarray, dst: np.ndarray, capacity: np.ndarray,
               prices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Compute proportionally fair rates of flows over two links each.

    :param prices: where to begin, positive, shape (n_links,).
    :returns: rates of the flows, and the links' prices.
    """
    n_links = len(capacity)
    # In a unit in which a price is of the order of one.
    unit = capacity.max()
    room = capacity / unit
    prices = np.maximum(prices, _TOLERANCE ** 2)
    for _ in range(_MAX_STEPS):
        rates = 1 / (prices[src] + prices[dst])
        load = (np.bincount(src, rates, n_links)
                + np.bincount(dst, rates, n_links)) / room
        worth = prices * np.abs(1 - load)
        if (load.max() <= 1 + _TOLERANCE
                and worth.max() <= _TOLERANCE * prices.max()):
            break
        # Half the way on each of a flow's two links.
        prices = np.maximum(prices * np.sqrt(load), _TOLERANCE ** 2)
    return rates * unit / max(1.0, load.max()), prices
