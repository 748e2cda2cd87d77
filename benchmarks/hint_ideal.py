# SPDX-License-Identifier: Apache-2.0

"""What order alone may gain: a fluid in which all is known at once. Pure.

At each arrival and each end of a flow the coflow with the least time left on
its slowest port goes first, then the next, and so on, without any delay or
guarantee (SEBF with preemption). The flows of one share by what they have
left. No controller is asked.
"""

from collections.abc import Mapping
from collections.abc import Sequence

import numpy as np

from virtco import units
from virtco_lab.sim import borrowing
from virtco_lab.sim import claims

_ENDED_BITS = 1.0


def ccts_s(coflows: Sequence[claims.Coflow],
           hosts: Mapping[str, Sequence[str]], link_bps: float,
           at_receivers: bool) -> list[float]:
    """CCT of each coflow.

    :param hosts: of each coflow's VMs, by its name.
    :param link_bps: of every host, both ways.
    :param at_receivers: whether receivers' links keep the order, too, or are
        shared as TCP shares them.
    """
    number = {name: i for i, name in enumerate(sorted(
        {host for its in hosts.values() for host in its}))}
    rows = [(i, *(number[hosts[one.coflow.name][end]]
                  for end in (flow.src, flow.dst)), flow.size_bytes)
            for i, one in enumerate(coflows) for flow in one.coflow.flows]
    of, src, dst = (np.array([row[k] for row in rows]) for k in range(3))
    left = units.BITS_PER_BYTE * np.array([row[3] for row in rows], float)
    starts_s = np.array([one.start_s for one in coflows])
    ends_s, now_s = starts_s.copy(), float(starts_s.min())
    links_bps = np.full(len(number), link_bps)
    level_bps = links_bps
    while (left >= _ENDED_BITS).any():
        active = np.flatnonzero((left >= _ENDED_BITS)
                                & (starts_s[of] <= now_s))
        coming_s = starts_s[starts_s > now_s]
        if not len(active):
            now_s = float(coming_s.min())
            continue
        flows = borrowing.Demands(
            src[active], dst[active], np.zeros(len(active)),
            np.full(len(active), link_bps),
            _ranks(of, src, dst, np.where(starts_s[of] <= now_s, left, 0.0),
                   len(coflows), len(number))[of[active]], left[active])
        if at_receivers:
            rates_bps = borrowing.in_order_bps(flows, links_bps, links_bps)
        else:
            rates_bps, level_bps = borrowing.over_tcp_bps(
                flows, links_bps, links_bps, level_bps)
        with np.errstate(divide='ignore'):
            dt_s = float((left[active] / rates_bps).min())
        next_s = min([now_s + dt_s, *coming_s.tolist()])
        left[active] -= rates_bps * (next_s - now_s)
        now_s = next_s
        ended = active[left[active] < _ENDED_BITS]
        ends_s[of[ended]] = now_s
    return [float(cct_s) for cct_s in ends_s - starts_s]


def _ranks(of: np.ndarray, src: np.ndarray, dst: np.ndarray,
           left_bits: np.ndarray, n_coflows: int, n_hosts: int) -> np.ndarray:
    """Place of each coflow by what its slowest port has left."""
    load = np.zeros((2 * n_hosts, n_coflows))
    np.add.at(load, (src, of), left_bits)
    np.add.at(load, (n_hosts + dst, of), left_bits)
    found: np.ndarray = np.argsort(np.argsort(load.max(axis=0)))
    return found
