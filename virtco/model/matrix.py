# SPDX-License-Identifier: Apache-2.0

"""The bytes that the VMs of a group send each other, as arrays.

One value from the hint to the policy: it is built while the hint is read, the
database keeps it, and planner, scheduler and table read its arrays. Nova's
scheduler loads this module, so numpy is left to those who compute: it takes
the arrays over without a copy.
"""

import array
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import hashlib


@dataclasses.dataclass(frozen=True)
class Flow:
    """Bytes from one VM of a group to another, both by index of the member.
    """

    src: int
    dst: int
    size_bytes: float


@dataclasses.dataclass(frozen=True)
class Matrix:
    """Non-zero entries of a traffic matrix; two of equal bytes are equal.

    :ivar n_vms: number of its rows.
    :ivar ends: senders of all flows, then their receivers, as 32-bit numbers.
    :ivar sizes: bytes of each flow, as 64-bit floats.
    """

    n_vms: int
    ends: bytes
    sizes: bytes

    @classmethod
    def of(cls, n_vms: int, src: Iterable[int], dst: Iterable[int],
           size_bytes: Iterable[float]) -> 'Matrix':
        """Make a matrix without checks; see :meth:`.coflow.Coflow.from_flows`.
        """
        return cls(n_vms, (array.array('i', src)
                           + array.array('i', dst)).tobytes(),
                   array.array('d', size_bytes).tobytes())

    def __len__(self) -> int:
        """Return the number of flows."""
        return len(self.sizes) // 8

    def __bool__(self) -> bool:
        return True

    @property
    def src(self) -> 'memoryview[int]':
        """Sender of each flow, shape (n_flows,); read-only."""
        return memoryview(self.ends).cast('i')[:len(self)]

    @property
    def dst(self) -> 'memoryview[int]':
        """Receiver of each flow, shape (n_flows,); read-only."""
        return memoryview(self.ends).cast('i')[len(self):]

    @property
    def size_bytes(self) -> 'memoryview[float]':
        """Bytes of each flow, shape (n_flows,); read-only."""
        return memoryview(self.sizes).cast('d')

    @functools.cached_property
    def digest(self) -> str:
        return hashlib.blake2b(
            b'%d %b%b' % (self.n_vms, self.ends, self.sizes),
            digest_size=16).hexdigest()

    @functools.cached_property
    def total_bytes(self) -> float:
        return sum(self.size_bytes)

    @functools.cached_property
    def flows(self) -> tuple[Flow, ...]:
        """For those who show them; who computes reads the arrays."""
        return tuple(Flow(*row) for row in self.rows())

    def rows(self) -> Iterator[tuple[int, int, float]]:
        """Return sender, receiver and bytes of each flow."""
        return zip(self.src, self.dst, self.size_bytes)

    def scaled(self, factor: float) -> 'Matrix':
        return Matrix(self.n_vms, self.ends, array.array('d', [
            size * factor for size in self.size_bytes]).tobytes())

    def renumbered(self, n_vms: int, number_of: Sequence[int]) -> 'Matrix':
        """Return the matrix over other VMs.

        :param number_of: the new number of each member, -1 for one that is
            left out with its flows.
        """
        if n_vms == self.n_vms and all(
                new == old for old, new in enumerate(number_of)):
            return self
        kept = [(number_of[src], number_of[dst], size_bytes)
                for src, dst, size_bytes in self.rows()
                if number_of[src] >= 0 and number_of[dst] >= 0]
        return Matrix.of(n_vms, *(zip(*kept) if kept else ((), (), ())))
