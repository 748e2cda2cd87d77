# SPDX-License-Identifier: Apache-2.0

"""The loads of running coflows, as sparse as they are.

Five hundred coflows on a thousand hosts are twenty thousand entries but a
million cells.
"""

from collections.abc import Iterator
import dataclasses

import numpy as np

from virtco.model import snapshot
from virtco.solver.model import loads_kernel


@dataclasses.dataclass(frozen=True)
class Loads:
    """Bytes of A coflows on P ports, coflow by coflow; N entries.

    :ivar start: entries of coflow c are start[c] to start[c + 1] - 1,
        each port at most once; shape (A + 1,).
    :ivar port: shape (N,).
    :ivar size_bytes: above 0, shape (N,).
    """

    start: np.ndarray
    port: np.ndarray
    size_bytes: np.ndarray
    n_ports: int

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def coflow(self) -> np.ndarray:
        """Coflow of every entry, shape (N,)."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def dense(self) -> np.ndarray:
        """Return the bytes per coflow and port, shape (A, P)."""
        result = np.zeros((len(self), self.n_ports))
        result[self.coflow, self.port] = self.size_bytes
        return result

    def per_port(self) -> np.ndarray:
        """Sum up the bytes per port, shape (P,)."""
        return self.first(len(self))

    def isolated_s(self, s_per_byte: np.ndarray) -> np.ndarray:
        """Compute each coflow's time alone, VirtCO Eq. (3); shape (A,)."""
        result = np.zeros(len(self))
        np.maximum.at(result, self.coflow,
                      self.size_bytes * s_per_byte[self.port])
        return result

    def ordered(self, order: np.ndarray) -> 'Loads':
        """Return the coflows in another order."""
        counts = np.diff(self.start)[order]
        start = _starts(counts)
        entry = np.arange(start[-1]) + np.repeat(
            self.start[order] - start[:-1], counts)
        return Loads(start, self.port[entry], self.size_bytes[entry],
                     self.n_ports)

    def moved(self, position: np.ndarray, n_ports: int) -> 'Loads':
        """Renumber the ports; ``position`` is -1 for ports that are left out.
        """
        port = position[self.port]
        kept = port >= 0
        counts = np.bincount(self.coflow[kept], minlength=len(self))
        return Loads(_starts(counts), port[kept], self.size_bytes[kept],
                     n_ports)

    def then(self, other: 'Loads') -> 'Loads':
        """Return these coflows and then the other's, on the same ports."""
        return Loads(
            np.concatenate([self.start, self.start[-1] + other.start[1:]]),
            np.concatenate([self.port, other.port]),
            np.concatenate([self.size_bytes, other.size_bytes]),
            self.n_ports)

    def first(self, n: int) -> np.ndarray:
        """Sum up the bytes per port of the first ``n`` coflows, shape (P,)."""
        end = self.start[n]
        return np.bincount(self.port[:end], self.size_bytes[:end],
                           self.n_ports).astype(float)

    def with_more(self, other: 'Loads') -> 'Loads':
        """Return the same coflows with the other's ports behind their own."""
        coflow = np.concatenate([self.coflow, other.coflow])
        order = np.argsort(coflow, kind='stable')
        return Loads(
            self.start + other.start,
            np.concatenate([self.port, other.port + self.n_ports])[order],
            np.concatenate([self.size_bytes, other.size_bytes])[order],
            self.n_ports + other.n_ports)

    def prefix_tops(self, s_per_byte: np.ndarray, width: int,
                    before: np.ndarray | None = None
                    ) -> tuple[np.ndarray, np.ndarray]:
        """Find the slowest ports, and their times, after 0 ... A coflows.

        :param before: bytes per port before the first coflow.
        :returns: two arrays of shape (A + 1, width), slowest first, port -1
            with time 0 for none.
        """
        shape = len(self) + 1, width
        ports, times = np.empty(shape, np.int64), np.empty(shape)
        load = np.zeros(self.n_ports) if before is None else before.copy()
        loads_kernel.prefix_tops(self.start, self.port, self.size_bytes,
                                 s_per_byte, load, ports, times)
        return ports, times

    def by_port(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the starts per port, then coflow and bytes of every entry."""
        first = np.zeros(self.n_ports + 1, np.int64)
        coflow = np.empty(len(self.port), np.int64)
        size_bytes = np.empty(len(self.port))
        loads_kernel.by_port(self.start, self.port, self.size_bytes, first,
                             coflow, size_bytes)
        return first, coflow, size_bytes


def read(active: tuple[snapshot.ActiveCoflow, ...],
         index: dict[str, int]) -> Loads:
    """Read the loads on egress and ingress ports of known hosts.

    :param index: host name -> egress port; ingress ports follow.
    :raises virtco.exception.Invalid: for bytes that are no size.
    """
    most = sum(len(coflow.out_bytes) + len(coflow.in_bytes)
               for coflow in active)
    start = np.zeros(len(active) + 1, np.int64)
    port, size_bytes = np.empty(most, np.int64), np.empty(most)
    place = np.full(2 * len(index), -1, np.int64)
    n = loads_kernel.read(active, index, start, port, size_bytes, place)
    return Loads(start, port[:n].copy(), size_bytes[:n].copy(),
                 2 * len(index))


def pairs_of(active: snapshot.ActiveCoflow
             ) -> Iterator[tuple[str, str, float]]:
    """List source host, destination host and bytes of a coflow's flows.

    Where the pairs are not known, the hosts' bytes are matched in order. What
    has no other end has the empty name there.
    """
    if active.pairs:
        yield from active.pairs
        return
    out, into = list(active.out_bytes), list(active.in_bytes)
    while out or into:
        src, left = out.pop() if out else ('', np.inf)
        dst, room = into.pop() if into else ('', np.inf)
        size_bytes = min(left, room)
        yield src, dst, size_bytes
        if left > size_bytes and src:
            out.append((src, left - size_bytes))
        if room > size_bytes and dst:
            into.append((dst, room - size_bytes))


def of_dense(rows: np.ndarray) -> Loads:
    """Make loads from bytes per coflow and port, shape (A, P)."""
    coflow, port = np.nonzero(rows)
    counts = np.bincount(coflow, minlength=len(rows))
    return Loads(_starts(counts), np.ascontiguousarray(port),
                 rows[coflow, port], rows.shape[1])


def _starts(counts: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
