# SPDX-License-Identifier: Apache-2.0

"""The arrays of a fabric and of its rates, laid out for kernels."""

from typing import Any

import cython
import numpy as np

if not cython.compiled:
    def popcount(word: int) -> int:
        return word.bit_count()

#: Python's own buffers give plain kernels Python's own numbers.
view: Any = memoryview


@cython.final
@cython.cclass
class Rater:
    """The arrays of a fabric, of its rates, and of scratch, for kernels.

    Built once per fabric; the fabric's arrays are shared with it.

    :ivar residual: bps left of each port, shape (P,).
    :ivar pace: rate at which each coflow's scale shrinks, per second, shape
        (C,).
    :ivar extra_flow: flows with a rate on top of the pace, ``n_extra`` of
        them, shape (2F + P,).
    :ivar extra_rate: rate of these flows, bps, shape (2F + P,).
    :ivar floor: guaranteed pace of each coflow, per second, 0 for none. It is
        read, not written, shape (C,).
    """

    def __init__(self, fabric: Any, has_sets: cython.bint = True) -> None:
        """Take a fabric's arrays.

        :param fabric: a :class:`virtco.scheduling.fabric.Fabric`.
        :param has_sets: lay out a set of ports for each coflow, which pays
            for those who rate one fabric many times. BACKFILL_GREEDY needs
            them. Without, the entries are looked through: of thousands of
            hosts a coflow uses few.
        """
        self.has_sets = has_sets
        self.cap, self.load = view(fabric.cap), view(fabric.load)
        self.base, self.scale = view(fabric.base), view(fabric.scale)
        self.weight, self.split = view(fabric.weight), view(fabric.split)
        self.flow_ptr = view(fabric.flow_ptr)
        self.entry_ptr = view(fabric.entry_ptr)
        self.skip, self.owner = view(fabric.skip), view(fabric.owner)
        self.src, self.dst = view(fabric.src), view(fabric.dst)
        self.port, self.alive = view(fabric.port), view(fabric.alive)
        self.first, self.last = view(fabric.first), view(fabric.last)
        self.up_ptr, self.up = view(fabric.up_ptr), view(fabric.up)
        # up_ptr has a number for each flow: it is read only if there are any.
        self.has_up = len(fabric.up) > 0
        n_ports, n_flows = len(fabric.cap), len(fabric.base)
        n_coflows = len(fabric.scale)
        self.residual = view(np.zeros(n_ports))
        self.pace = view(np.zeros(n_coflows))
        self.floor = view(np.zeros(n_coflows))
        # Back-fill in order goes over the flows twice.
        n_extra = 2 * n_flows + n_ports
        self.extra_flow = view(np.zeros(n_extra, np.int64))
        self.extra_rate = view(np.zeros(n_extra))
        self.n_extra = 0
        self._lay_out_sets(fabric.n_hosts, n_coflows, len(fabric.port))
        self.demand = view(np.zeros(n_ports))
        self.share = view(np.zeros(n_ports))
        self.count = view(np.zeros(n_ports, np.int64))
        self.start = view(np.zeros(n_ports + 1, np.int64))
        self.place = view(np.zeros(n_ports + 1, np.int64))
        self.rising = view(np.zeros(n_ports, np.int64))
        self.chosen = view(np.zeros(n_coflows, np.int64))
        self.flows = view(np.empty(n_flows, np.int64))
        self.rising_weight = view(np.empty(n_flows))
        self.at_port = view(np.empty(2 * n_flows + len(fabric.up), np.int32))
        self.stopped = view(np.empty(n_flows, np.uint8))

    def _lay_out_sets(self, n_hosts: cython.Py_ssize_t,
                      n_coflows: cython.Py_ssize_t,
                      n_entries: cython.Py_ssize_t) -> None:
        """Make the sets of ports."""
        n_words = (n_hosts + 63) >> 6
        n_up = self.cap.shape[0] - 2 * n_hosts
        self.n_hosts, self.n_words = n_hosts, n_words
        self.all_words = 2 * n_words + ((n_up + 63) >> 6)
        at = np.concatenate([np.tile(np.arange(n_hosts), 2),
                             np.arange(n_up)])
        self.bit = view(np.uint64(1) << (at & 63).astype(np.uint64))
        self.word = view((at >> 6) + n_words * np.repeat(
            [0, 1, 2], [n_hosts, n_hosts, n_up]))
        self.all_open = no_sets(self.all_words)
        self.open_ports = no_sets(self.all_words)
        for p in range(self.cap.shape[0]):
            if self.cap[p] > 0.0:
                self.all_open[self.word[p]] |= self.bit[p]
        if not self.has_sets:
            n_coflows = n_entries = 0
        self.used_ports = no_sets(self.all_words * n_coflows)
        self.had_ports = no_sets(self.all_words * n_coflows)
        self.ports_before = view(np.zeros(self.all_words * n_coflows,
                                          np.int32))
        self.row_at = view(np.full(n_entries, -1))
        n_rows = fill_sets(self, n_coflows) if self.has_sets else 0
        self.row_alive = no_sets(n_rows * n_words)
        self.row_had = no_sets(n_rows * n_words)
        self.row_before = view(np.zeros(n_rows * n_words, np.int32))
        if not self.has_sets:
            return
        fill_rows(self)
        count_before(self.had_ports, self.all_words, self.ports_before)
        count_before(self.row_had, n_words, self.row_before)


def no_sets(n_words: cython.Py_ssize_t) -> Any:
    """Return empty sets of ports, 64 ports a word, shape (n_words,)."""
    return view(np.zeros(n_words, np.uint64))


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def count_before(had: cython.ulonglong[::1], n_words: cython.Py_ssize_t,
                 before: cython.int[::1]) -> cython.void:
    """Write how many ports of its set come before each word."""
    for w in range(had.shape[0]):
        if w % n_words == 0:
            before[w] = 0
        else:
            before[w] = before[w - 1] + popcount(had[w - 1])


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_sets(rater: Rater, n_coflows: cython.Py_ssize_t
              ) -> cython.Py_ssize_t:
    """Fill the sets of ports that each coflow has and still uses.

    Returns the number of egress entries, which it numbers in row_at.
    """
    n_rows = 0
    for c in range(n_coflows):
        for e in range(rater.entry_ptr[c], rater.entry_ptr[c + 1]):
            p = rater.port[e]
            at = c * rater.all_words + rater.word[p]
            rater.had_ports[at] |= rater.bit[p]
            if rater.alive[e] > 0:
                rater.used_ports[at] |= rater.bit[p]
            if e < rater.split[c]:
                rater.row_at[e] = n_rows * rater.n_words
                n_rows += 1
    return n_rows


@cython.cfunc
@cython.nogil
@cython.exceptval(check=False)
def fill_rows(rater: Rater) -> cython.void:
    """Fill the sets of ports that each egress entry's flows go to.

    An entry with two flows to one port has none (row_at is -1).
    """
    for f in range(rater.base.shape[0]):
        e = rater.src[f]
        row = rater.row_at[e]
        if row < 0:
            continue
        p = rater.port[rater.dst[f]]
        at = row + rater.word[p] - rater.n_words
        if rater.row_had[at] & rater.bit[p] != 0:
            rater.row_at[e] = -1
            continue
        rater.row_had[at] |= rater.bit[p]
        if rater.skip[f] == f:
            rater.row_alive[at] |= rater.bit[p]


def end_in_row(rater: Rater, f: cython.Py_ssize_t) -> cython.void:
    """Mark flow f as ended in its sender's row."""
    row = rater.row_at[rater.src[f]]
    if row >= 0:
        p = rater.port[rater.dst[f]]
        rater.row_alive[row + rater.word[p] - rater.n_words] &= ~rater.bit[p]


def start_in_row(rater: Rater, f: cython.Py_ssize_t) -> cython.void:
    """Mark flow f, which had ended, as started again in its sender's row."""
    row = rater.row_at[rater.src[f]]
    if row >= 0:
        p = rater.port[rater.dst[f]]
        rater.row_alive[row + rater.word[p] - rater.n_words] |= rater.bit[p]


def enter_port(rater: Rater, c: cython.Py_ssize_t, p: cython.Py_ssize_t
               ) -> cython.void:
    """Mark port p as used by coflow c."""
    rater.used_ports[c * rater.all_words + rater.word[p]] |= rater.bit[p]


def leave_port(rater: Rater, c: cython.Py_ssize_t, p: cython.Py_ssize_t
               ) -> cython.void:
    """Mark port p as not used any more by coflow c."""
    rater.used_ports[c * rater.all_words + rater.word[p]] &= ~rater.bit[p]


def clear(rater: Rater) -> cython.void:
    """Set the demand and count of all ports to 0, to add loads up."""
    for p in range(rater.cap.shape[0]):
        rater.demand[p] = 0.0
        rater.count[p] = 0
