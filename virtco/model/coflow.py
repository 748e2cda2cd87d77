# SPDX-License-Identifier: Apache-2.0

"""Coflows: who sends how many bytes to whom."""

from collections.abc import Iterable
from collections.abc import Sequence
from dataclasses import dataclass
from dataclasses import field
from dataclasses import replace

from virtco.model import matrix as matrices

Flow = matrices.Flow

#: Orders that a tenant may choose: the least remaining time first (VirtCO), or
#: the most computing per time on the slowest link (Crux).
MRTF, INTENSITY = ORDERS = ('mrtf', 'intensity')


@dataclass(frozen=True, slots=True)
class Coflow:
    """A traffic matrix P_i over the VMs of a group (VirtCO section 4.1).

    :ivar name: unique within the group.
    :ivar matrix: self-flows are left out and duplicates are added up by
        :meth:`from_flows`.
    :ivar self_bytes: VMs with the bytes of their self-flows, which are in no
        class; known while the hint is read.
    :ivar dst_port: TCP/UDP destination port by which the edge tells this
        coflow from another over the same pair of VMs; None matches all.
    :ivar iterations: number of times that the whole matrix is sent; 0 =
        without end.
    :ivar period_s: seconds from the start of one iteration to the start of the
        next; None = not said.
    :ivar compute_s: seconds of an iteration in which nothing is sent; None =
        not said.
    :ivar order: order among coflows of its class, where the operator's policy
        is ``mrtf`` or ``mrtf+swap``: one of :data:`ORDERS`; None = by
        intensity where it computes.
    :ivar rank_hint: whether the tenant wants an order of ranks proposed.
    :ivar is_estimated: whether the sizes are unknown; those of ``flows`` are a
        first guess, and counted bytes give better ones.
    """

    name: str
    matrix: matrices.Matrix
    dst_port: int | None = None
    iterations: int = 1
    period_s: float | None = None
    compute_s: float | None = None
    rank_hint: bool = False
    is_estimated: bool = False
    order: str | None = None
    self_bytes: tuple[tuple[int, float], ...] = field(
        default=(), compare=False)

    @classmethod
    def from_flows(cls, name: str, n_vms: int,
                   flows: Iterable[tuple[int, int, float]],
                   dst_port: int | None = None,
                   iterations: int = 1) -> 'Coflow':
        """Build from (src, dst, size_bytes) rows."""
        total: dict[tuple[int, int], float] = {}
        for src, dst, size_bytes in flows:
            if size_bytes > 0:
                total[src, dst] = total.get((src, dst), 0.0) + size_bytes
        ends = sorted(end for end in total if end[0] != end[1])
        return cls(name, matrices.Matrix.of(
            n_vms, (src for src, _ in ends), (dst for _, dst in ends),
            (total[end] for end in ends)), dst_port, iterations,
            self_bytes=tuple((src, size_bytes) for (src, dst), size_bytes
                             in sorted(total.items()) if src == dst))

    @property
    def n_vms(self) -> int:
        """Number of VMs in the matrix, those without flows included."""
        return self.matrix.n_vms

    @property
    def flows(self) -> tuple[Flow, ...]:
        """See :attr:`virtco.model.matrix.Matrix.flows`."""
        return self.matrix.flows

    @property
    def size_bytes(self) -> float:
        return self.matrix.total_bytes

    @property
    def computes(self) -> bool:
        """Whether it is that of a job that computes and sends in turn."""
        return bool(self.compute_s) and self.iterations != 1

    @property
    def is_by_intensity(self) -> bool:
        """Whether it is served by computing over sending (Crux)."""
        return self.computes and self.order != MRTF

    def scaled(self, factor: float) -> 'Coflow':
        """Return the coflow with every size multiplied, e.g. by 1 + beta*."""
        return replace(self, matrix=self.matrix.scaled(factor))

    def renumbered(self, n_vms: int, number_of: Sequence[int]) -> 'Coflow':
        """Renumber the VMs; see :meth:`virtco.model.matrix.Matrix.renumbered`.
        """
        return replace(self, matrix=self.matrix.renumbered(n_vms, number_of))
