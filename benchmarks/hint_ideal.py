# SPDX-License-Identifier: Apache-2.0

"""What order alone may gain: a fluid in which all is known at once. Pure.

At each arrival and each end of a flow the coflow with the least time left on
its slowest port goes first, then the next, and so on, without any delay or
guarantee (SEBF with preemption). The flows of one share by what they have
left. No controller is asked.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import math

import numpy as np

from virtco.fluid import flow_kernels
from virtco_lab.sim import claims


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
    starts_s = np.array([one.start_s for one in coflows])
    flows = flow_kernels.Flows(
        np.full(2 * len(number), link_bps), src, len(number) + dst,
        np.zeros_like(of), 1, np.array([row[3] for row in rows], float),
        starts_s[of], 'order' if at_receivers else 'tcp')
    flows.ceil = np.full(len(of), link_bps)
    while flows.n_left:
        if not flows.is_rated:
            flows.weight = np.array(flows.left)
            flows.rank = _ranks(
                of, src, dst, flows.weight * np.asarray(flows.is_live),
                len(coflows), len(number))[of]
        flow_kernels.step(flows, math.inf)
    ends_s = starts_s.copy()
    np.maximum.at(ends_s, of, flows.end_s)
    return [float(cct_s) for cct_s in ends_s - starts_s]


def _ranks(of: np.ndarray, src: np.ndarray, dst: np.ndarray,
           left_bytes: np.ndarray, n_coflows: int, n_hosts: int) -> np.ndarray:
    """Place of each coflow by what its slowest port has left."""
    load = np.zeros((2 * n_hosts, n_coflows))
    np.add.at(load, (src, of), left_bytes)
    np.add.at(load, (n_hosts + dst, of), left_bytes)
    found: np.ndarray = np.argsort(np.argsort(load.max(axis=0)))
    return found
