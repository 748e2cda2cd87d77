# SPDX-License-Identifier: Apache-2.0

"""Port at which a coflow waits, and the coflows before it. Pure."""

from collections.abc import Sequence
import dataclasses

import numpy as np

from virtco import units
from virtco.model import live
from virtco.state import schedule_input as known

#: Times that differ by less are equal.
ROUNDING = 1e-9


@dataclasses.dataclass(frozen=True, slots=True)
class Waiting:
    """The port or cap where a coflow waits longest.

    :ivar port: cap that serves the coflow last; of no VM: the host's port.
    :ivar busy_s: time until the port has served it and all before it.
    :ivar n_before: number of coflows that the port serves before it.
    """

    port: live.Cap
    busy_s: float
    n_before: int
    _served: Sequence[str]

    @property
    def waits_for(self) -> tuple[str, ...]:
        """Ids of those that are served there before it, by rank."""
        return tuple(self._served[:self.n_before])


def find(schedule: live.Schedule, snapshot: known.Snapshot
         ) -> dict[str, Waiting]:
    """Find the bottleneck of each coflow with bytes left between hosts.

    The port where the bytes of the coflow and of all that rank before it take
    longest (the prefix CCT of Varys' and VirtCO's orders). Back-filling lets a
    coflow move earlier elsewhere, not end earlier there.
    """
    lives = {coflow.live.coflow_id: coflow.live for coflow in snapshot.coflows}
    ids = [coflow.coflow_id for coflow in schedule.coflows]
    ports, rank, number, busy_s = _busy([lives[one] for one in ids], snapshot)
    # Rows of a port stand by rank: those before a coflow's are served first.
    by_port = np.lexsort((rank, number))
    rank, number, busy_s = rank[by_port], number[by_port], busy_s[by_port]
    begins = np.searchsorted(number, number)
    until_s = _sums_since(begins, busy_s)
    longest_s = np.zeros(len(ids))
    np.maximum.at(longest_s, rank, until_s)
    served: dict[int, list[str]] = {}
    found: dict[str, Waiting] = {}
    for row in np.flatnonzero(
            until_s >= (1 - ROUNDING) * longest_s[rank]).tolist():
        coflow_id, port = ids[rank[row]], ports[number[row]]
        other = found.get(coflow_id)
        if other is not None and other.port > port:
            continue
        begin = begins[row].item()
        if begin not in served:
            end = np.searchsorted(number, number[row], 'right')
            served[begin] = [ids[one] for one in rank[begin:end].tolist()]
        found[coflow_id] = Waiting(
            port, until_s[row].item() * snapshot.size_factor,
            row - begin, served[begin])
    return found


def _busy(coflows: Sequence[live.LiveCoflow], snapshot: known.Snapshot
          ) -> tuple[list[live.Cap], np.ndarray, np.ndarray, np.ndarray]:
    """Return how long coflows keep ports and caps busy.

    :returns: ports, then rank of the coflow, number of the port, and seconds
        of each pair of both where there are some.
    """
    names, index = snapshot.hosts.names, snapshot.hosts.number_of
    ports: list[live.Cap] = [live.Cap(name, direction, '') for direction in (
        'egress', 'ingress') for name in names]
    pairs = [coflow.flows.pairs.numbers(index) for coflow in coflows]
    rank = np.repeat(np.arange(len(pairs)), [len(some) for some in pairs])
    src, dst = np.concatenate([*pairs, np.zeros((0, 2), int)]).T
    bits = units.BITS_PER_BYTE * (src != dst) * np.concatenate([
        *(coflow.flows.remaining_bytes for coflow in coflows), np.zeros(0)])
    keys, which = np.unique(np.concatenate((
        rank * len(ports) + src, rank * len(ports) + len(names) + dst)),
        return_inverse=True)
    load = np.bincount(which, np.tile(bits, 2))
    rank, number = np.divmod(keys[load > 0], len(ports))
    with np.errstate(divide='ignore'):
        busy_s = load[load > 0] / np.concatenate((
            snapshot.egress_bps, snapshot.ingress_bps))[number]
    caps: dict[live.Cap, int] = {}
    capped = [(at, caps.setdefault(cap, len(ports) + len(caps)), each_s)
              for at, coflow in enumerate(coflows)
              if coflow.capped is not None
              for cap, each_s in coflow.capped.busy_s(coflow.flows).items()
              if each_s > 0]
    ports += caps
    if capped:
        ranks, numbers, each = zip(*capped)
        rank, number, busy_s = (np.append(rank, ranks), np.append(
            number, numbers), np.append(busy_s, each))
    return ports, rank, number, busy_s


def _sums_since(begins: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Sum each value and those before it from where its part begins.

    A part has inf from its first inf on; no other part is changed by it.
    """
    is_inf = np.isinf(values)
    sums, n_inf = (np.concatenate(([0], np.cumsum(some))) for some in (
        np.where(is_inf, 0.0, values), is_inf))
    found: np.ndarray = np.where(n_inf[1:] > n_inf[begins], np.inf,
                                 sums[1:] - sums[begins])
    return found
