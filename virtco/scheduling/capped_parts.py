# SPDX-License-Identifier: Apache-2.0

"""Flows of coflows as parts, each of which passes the same caps. Pure.

A flow between two hosts is that of several pairs of VMs. Where some of them
have caps it is split, so that a cap holds its own VM back and no other.
"""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from virtco.model import live
from virtco.scheduling import fabric as fabric_model


class Parts(NamedTuple):
    """Parts of the flows of all coflows.

    :ivar place: flow of each part, shape (n_parts,).
    :ivar share: share of its flow's bytes, shape (n_parts,).
    :ivar caps: caps that the parts pass.
    :ivar names: names of the caps.
    """

    place: np.ndarray
    share: np.ndarray
    caps: fabric_model.Caps
    names: tuple[live.Cap, ...] = ()

    def left(self, residual_bps: np.ndarray) -> dict[live.Cap, float]:
        """Name the rate left of each cap, bit/s.

        :param residual_bps: residual rate of all ports, the caps last.
        """
        first = len(residual_bps) - len(self.names)
        return dict(zip(self.names, residual_bps[first:].tolist()))


def split(coflows: Sequence[live.LiveCoflow], start: Sequence[int],
          left_bps: Mapping[live.Cap, float]) -> Parts:
    """Split the flows of coflows.

    :param start: index of each coflow's first flow and of none after, shape
        (C+1,).
    :param left_bps: rate left of caps that are used already.
    """
    n_flows = start[-1]
    if all(coflow.capped is None for coflow in coflows):
        return Parts(np.arange(n_flows), np.ones(n_flows),
                     fabric_model.NO_CAPS)
    rates_bps: dict[live.Cap, float] = {}
    places, shares, passes = [], [], []
    for coflow, first, end in zip(coflows, start, start[1:]):
        capped = coflow.capped
        if capped is None:
            places.append(np.arange(first, end))
            shares.append(np.ones(end - first))
            passes.append(np.full((end - first, 2), -1))
            continue
        rates_bps |= capped.rates_bps
        number = {cap: i for i, cap in enumerate(rates_bps)}
        # The last one is for -1.
        known = np.array([*map(number.__getitem__, capped.rates_bps), -1])
        places.append(first + capped.pair_of)
        shares.append(capped.share)
        passes.append(known[capped.passed])
    return Parts(
        np.concatenate(places), np.concatenate(shares), fabric_model.Caps(
            np.array([left_bps.get(cap, rate_bps)
                      for cap, rate_bps in rates_bps.items()]),
            np.concatenate(passes)), tuple(rates_bps))
