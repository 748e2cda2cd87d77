# SPDX-License-Identifier: Apache-2.0

"""Fabrics of coflows that are given one by one."""

from collections.abc import Iterable
from collections.abc import Sequence

import numpy as np

from virtco import units
from virtco.model import uplinks as uplinks_model
from virtco.scheduling import fabric as fabric_model

_NOTHING = fabric_model.Demand(np.zeros(0, np.int32), np.zeros(0, np.int32),
                               np.zeros(0), np.zeros(0))


def of_flows(flows: Iterable[tuple[int, int, float, float]]
             ) -> fabric_model.Demand:
    """Build a demand of source, destination, bytes and weight of each flow."""
    src, dst, size_bytes, weight = np.array(list(flows), float).reshape(
        -1, 4).T.copy()
    return fabric_model.Demand(src.astype(np.int64), dst.astype(np.int64),
                               size_bytes * units.BITS_PER_BYTE, weight)


def fabric_of(cap: np.ndarray, demands: Iterable[fabric_model.Demand],
              uplinks: uplinks_model.Uplinks = uplinks_model.NONE
              ) -> fabric_model.Fabric:
    """Lay the demands out; ``cap`` is egress then ingress, shape (2H,).

    :param demands: let go before the fabric is made, which takes four times
        the room of its flows for a moment.
    """
    counts, flows = _together(demands)
    return fabric_model.lay_out(cap, len(counts), np.repeat(
        np.arange(len(counts)), counts), flows, uplinks)[0]


def _together(demands: Iterable[fabric_model.Demand]
              ) -> tuple[np.ndarray, fabric_model.Demand]:
    """Return the number of flows of each demand, and all flows."""
    found = list(demands)
    src, dst, bits, weight = map(np.concatenate, zip(_NOTHING, *found))
    return (np.array([len(demand.bits) for demand in found], np.int64),
            fabric_model.Demand(src.astype(np.int32, copy=False),
                                dst.astype(np.int32, copy=False), bits,
                                weight))


def append(fabric: fabric_model.Fabric,
           demands: Sequence[fabric_model.Demand]) -> fabric_model.Fabric:
    """Return a fabric with the demands behind those it has, as they are."""
    counts, added = _together(demands)
    n_known = len(fabric.scale)
    known = fabric_model.Demand(
        fabric.port[fabric.src], fabric.port[fabric.dst] - fabric.n_hosts,
        fabric.base, fabric.weight)
    new = fabric_model.lay_out(
        fabric.cap[:2 * fabric.n_hosts], n_known + len(counts),
        np.append(fabric.owner, np.repeat(
            n_known + np.arange(len(counts)), counts)),
        fabric_model.Demand(*map(np.append, known, added)),
        fabric.uplinks)[0]
    # Coflows are laid out one after another: the known ones are first.
    for fresh, old in zip(new, fabric):
        if isinstance(fresh, np.ndarray) and isinstance(old, np.ndarray):
            fresh[:len(old)] = old
    return new
