# SPDX-License-Identifier: Apache-2.0

"""Coflows on a fabric as flat arrays, for the kernels.

Ports 0 … H-1 are the hosts' egress, H … 2H-1 their ingress, and those after
them the uplinks of racks and what is above, if any limits, then the caps of
VMs: what a VM may send, or receive, is a port of its own. Inside these
arrays sizes are **bits** and rates bits per second. A coflow's remaining
sizes are kept as ``base * scale``: MADD shrinks all flows of a coflow in
proportion, which changes one number instead of all of them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from virtco.model import uplinks as uplinks_model


class Fabric(NamedTuple):
    """C coflows with F flows over P ports; an *entry* is a coflow at a port.

    :ivar cap: rate of each port, bps, shape (P,).
    :ivar flow_ptr: flows of coflow c are flow_ptr[c] … flow_ptr[c+1]-1, sorted
        by source and then destination port, shape (C+1,).
    :ivar entry_ptr: entries of coflow c, egress ones first, uplinks last,
        shape (C+1,).
    :ivar split: first ingress entry of each coflow, shape (C,).
    :ivar src: entry of each flow's egress port, shape (F,).
    :ivar dst: entry of each flow's ingress port, shape (F,).
    :ivar base: remaining bits / scale, 0 when the flow has ended, shape (F,).
    :ivar weight: weight of each flow in per-flow fair sharing, shape (F,).
    :ivar owner: coflow of each flow, shape (F,).
    :ivar port: port of each entry, shape (E,).
    :ivar load: sum of base over the entry's flows, shape (E,).
    :ivar alive: flows of the entry that have not ended, shape (E,).
    :ivar first: first flow of an egress entry, shape (E,).
    :ivar last: one past the last flow of an egress entry, shape (E,).
    :ivar skip: to find the next flow that has not ended, shape (F+1,): each
        flow that has points past itself.
    :ivar scale: scale of each coflow, 1 at first, shape (C,).
    :ivar up_ptr: uplinks and caps of flow f are up[up_ptr[f]] …
        up[up_ptr[f+1]-1], shape (F+1,).
    :ivar up: entries of the uplinks and caps that the flows pass.
    :ivar uplinks: uplinks of the hosts.
    :ivar n_caps: ports that are caps of VMs.
    """

    cap: np.ndarray
    flow_ptr: np.ndarray
    entry_ptr: np.ndarray
    split: np.ndarray
    src: np.ndarray
    dst: np.ndarray
    base: np.ndarray
    weight: np.ndarray
    owner: np.ndarray
    port: np.ndarray
    load: np.ndarray
    alive: np.ndarray
    first: np.ndarray
    last: np.ndarray
    skip: np.ndarray
    scale: np.ndarray
    up_ptr: np.ndarray
    up: np.ndarray
    uplinks: uplinks_model.Uplinks = uplinks_model.NONE
    n_caps: int = 0

    @property
    def n_hosts(self) -> int:
        return (len(self.cap) - len(self.uplinks.cap_bps) - self.n_caps) // 2

    def busy_s(self, coflow: int) -> np.ndarray:
        """Return the time for which a coflow's remaining bits keep each port
        busy, shape (P,).
        """
        entries = slice(self.entry_ptr[coflow], self.entry_ptr[coflow + 1])
        ports, bits = self.port[entries], self.load[entries]
        found = np.zeros(len(self.cap))
        with np.errstate(divide='ignore'):
            found[ports] = np.divide(
                bits * self.scale[coflow], self.cap[ports],
                out=np.zeros(len(bits)), where=bits > 0)
        return found


class Demand(NamedTuple):
    """Flows of one coflow by host index; equal shapes (f,).

    :ivar bits: remaining size, above 0.
    :ivar weight: number of VM-to-VM flows each stands for.
    """

    src_host: np.ndarray
    dst_host: np.ndarray
    bits: np.ndarray
    weight: np.ndarray


class Caps(NamedTuple):
    """Caps of VMs.

    :ivar rate_bps: rate of each cap, shape (K,).
    :ivar passed: the caps that each flow passes, -1 for none, shape (F, 2).
    """

    rate_bps: np.ndarray
    passed: np.ndarray


#: Caps where no VM has one.
NO_CAPS = Caps(np.zeros(0), np.zeros((0, 2), np.int64))


def lay_out(cap: np.ndarray, n_coflows: int, owner: np.ndarray,
            flows: Demand,
            uplinks: uplinks_model.Uplinks = uplinks_model.NONE,
            caps: Caps = NO_CAPS) -> tuple[Fabric, np.ndarray]:
    """Lay out all coflows' flows; return the fabric and its flows' order.

    The order is the index of each fabric flow among those given, shape (F,).

    :param cap: rate of each port, egress then ingress, shape (2H,).
    :param owner: coflow of each flow, ascending, shape (F,).
    """
    n_hosts = len(cap) // 2
    cap = np.concatenate((cap, uplinks.cap_bps, caps.rate_bps))
    n_ports = len(cap)
    order = np.argsort((owner * n_ports + flows.src_host) * n_ports
                       + flows.dst_host)
    owner, bits = owner[order], flows.bits[order]
    up_ptr, up_key = uplinks.passed(flows.src_host[order],
                                    flows.dst_host[order])
    if len(caps.rate_bps):
        up_ptr, up_key = _joined(up_ptr, up_key, caps.passed[order],
                                 len(uplinks.cap_bps))
    passing = np.repeat(np.arange(len(bits)), np.diff(up_ptr))
    up_key += owner[passing] * n_ports + 2 * n_hosts
    entries, ends = _entries(
        owner * n_ports + flows.src_host[order],
        owner * n_ports + flows.dst_host[order] + n_hosts, up_key)
    src_entry, dst_entry, up_entry = ends
    n_entries = len(entries)
    entry_at = np.arange(n_entries)
    entry_ptr = np.searchsorted(entries, np.arange(n_coflows + 1) * n_ports)
    split = np.searchsorted(
        entries, np.arange(n_coflows) * n_ports + n_hosts)
    return Fabric(
        cap=np.ascontiguousarray(cap, np.float64),
        flow_ptr=np.searchsorted(owner, np.arange(n_coflows + 1)).astype(
            np.int64),
        entry_ptr=entry_ptr.astype(np.int64), split=split.astype(np.int64),
        src=src_entry, dst=dst_entry,
        base=bits, weight=flows.weight[order], owner=owner.astype(np.int32),
        port=(entries % n_ports).astype(np.int32),
        load=_sums(ends, (bits, bits, bits[passing]), n_entries),
        alive=_sums(ends, (None, None, None), n_entries).astype(np.int32),
        first=np.searchsorted(src_entry, entry_at).astype(np.int32),
        last=np.searchsorted(src_entry, entry_at, 'right').astype(np.int32),
        skip=np.arange(len(bits) + 1), scale=np.ones(n_coflows),
        up_ptr=up_ptr, up=up_entry, uplinks=uplinks,
        n_caps=len(caps.rate_bps)), order


def _entries(out_key: np.ndarray, in_key: np.ndarray, up_key: np.ndarray
             ) -> tuple[np.ndarray, tuple[np.ndarray, ...]]:
    """Return the sorted keys of all entries, and each flow's entries there.

    :param out_key: key of each flow's source, ascending, shape (F,).
    :param in_key: key of each flow's destination, shape (F,).
    :param up_key: key of each port above that a flow passes.
    """
    is_new = _is_new(out_key)
    entries = np.concatenate((out_key[is_new], in_key, up_key))
    entries.sort()
    entries = entries[_is_new(entries)]
    src_entry = np.searchsorted(entries, out_key[is_new])[
        np.cumsum(is_new) - 1].astype(np.int32)
    return entries, (src_entry, *(
        np.searchsorted(entries, key).astype(np.int32)
        for key in (in_key, up_key)))


def _sums(ends: Sequence[np.ndarray], of_flows: Sequence[np.ndarray | None],
          n_entries: int) -> np.ndarray:
    """Sum a number of each flow over the flows of each entry, shape (E,).

    :param ends: entry of each flow's source, of its destination, and of each
        port above that it passes.
    :param of_flows: numbers, likewise; None to count flows.
    """
    found = np.zeros(n_entries)
    for at, each in zip(ends, of_flows):
        found += np.bincount(at, each, n_entries)
    return found


def _joined(up_ptr: np.ndarray, up: np.ndarray, caps: np.ndarray,
            n_uplinks: int) -> tuple[np.ndarray, np.ndarray]:
    """Add the caps of the flows to the uplinks that they pass.

    :param caps: caps of each flow, -1 for none, shape (F, 2).
    """
    has_cap = caps >= 0
    flow = np.concatenate((np.repeat(np.arange(len(caps)), np.diff(up_ptr)),
                           np.nonzero(has_cap)[0]))
    start = up_ptr + np.append(0, np.cumsum(has_cap.sum(axis=1)))
    found = np.concatenate((up, n_uplinks + caps[has_cap]))
    return start, found[np.argsort(flow, kind='stable')]


def resized(fabric: Fabric, bits: np.ndarray) -> Fabric:
    """Replace the sizes of the flows.

    :param bits: remaining size of each flow, 0 of ended ones, shape (F,).
    """
    passing = np.repeat(np.arange(len(bits)), np.diff(fabric.up_ptr))
    ends = fabric.src, fabric.dst, fabric.up
    at_ends = bits, bits, bits[passing]
    n_entries = len(fabric.port)
    return fabric._replace(
        base=bits, scale=np.ones(len(fabric.scale)),
        load=_sums(ends, at_ends, n_entries),
        alive=_sums(ends, [each > 0 for each in at_ends], n_entries).astype(
            np.int32),
        skip=np.arange(len(bits) + 1) + np.append(bits <= 0, False))


def _is_new(values: np.ndarray) -> np.ndarray:
    """Mark each value that differs from the one before it."""
    found = np.ones(len(values), bool)
    found[1:] = values[1:] != values[:-1]
    return found
