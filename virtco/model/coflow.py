# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

"""Coflows: who sends how many bytes to whom."""

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace
import math

from virtco import exception


@dataclass(frozen=True, slots=True)
class Flow:
    """Bytes from one VM of a group to another, both by row index."""

    src: int
    dst: int
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Coflow:
    """One traffic matrix P_i over the VMs of a group (VirtCO section 4.1).

    :ivar name: unique within the group.
    :ivar n_vms: number of rows of the matrix.
    :ivar flows: the non-zero entries; self-flows are left out and duplicates
        are added up by :meth:`from_flows`.
    :ivar dst_port: TCP/UDP destination port by which the edge tells this
        coflow from another over the same pair of VMs; None matches all.
    :ivar iterations: how often the whole matrix is sent, 0 = without end.
    :ivar period_s: seconds from the start of one iteration to the start of
        the next, None = not said.
    :ivar compute_s: seconds of an iteration in which nothing is sent, None =
        not said.
    :ivar rank_hint: whether the tenant wants an order of ranks proposed.
    """

    name: str
    n_vms: int
    flows: tuple[Flow, ...]
    dst_port: int | None = None
    iterations: int = 1
    period_s: float | None = None
    compute_s: float | None = None
    rank_hint: bool = False

    @classmethod
    def from_flows(cls, name: str, n_vms: int,
                   flows: 'list[tuple[int, int, float]]',
                   dst_port: int | None = None,
                   iterations: int = 1) -> 'Coflow':
        """Build from (src, dst, size_bytes) rows.

        :raises virtco.exception.Invalid: for an index out of range or a size
            that is negative, NaN or infinite.
        """
        total: dict[tuple[int, int], float] = {}
        for src, dst, size_bytes in flows:
            for field, index in (('src', src), ('dst', dst)):
                if not 0 <= index < n_vms:
                    raise exception.Invalid(
                        field=field, value=index,
                        limit=f'between 0 and {n_vms - 1}')
            if not (math.isfinite(size_bytes) and size_bytes >= 0):
                raise exception.Invalid(
                    field='size_bytes', value=size_bytes,
                    limit='a finite number of bytes, at least 0')
            if src != dst and size_bytes > 0:
                total[src, dst] = total.get((src, dst), 0.0) + size_bytes
        return cls(name, n_vms,
                   tuple(Flow(s, d, b) for (s, d), b in sorted(total.items())),
                   dst_port, iterations)

    @property
    def size_bytes(self) -> float:
        return sum(flow.size_bytes for flow in self.flows)

    def scaled(self, factor: float) -> 'Coflow':
        """The same coflow with every size multiplied, e.g. by 1 + beta*."""
        return self.over(self.n_vms, (
            Flow(f.src, f.dst, f.size_bytes * factor) for f in self.flows))

    def over(self, n_vms: int, flows: Iterable[Flow]) -> 'Coflow':
        """The same coflow with other flows, over a group of ``n_vms``."""
        return replace(self, n_vms=n_vms, flows=tuple(flows))
