# SPDX-License-Identifier: Apache-2.0

"""The figures of a hint: sums, limits, warnings. Pure."""

from collections.abc import Sequence
import dataclasses

from virtco import hint_matrix
from virtco import hints
from virtco import units
from virtco.model import coflow as coflow_model

#: Flows below it are mostly a number whose unit was forgotten.
SMALL_BYTES = 1e6
#: Sizes without a unit that have a warning each.
MOST_SIZES = 5


@dataclasses.dataclass(frozen=True, slots=True)
class VmSums:
    """Bytes and peers of one VM, summed over all coflows of the hint."""

    vm: int
    out_bytes: float
    in_bytes: float
    n_to: int
    n_from: int


@dataclasses.dataclass(frozen=True, slots=True)
class Figures:
    """A hint with its sums.

    :ivar text: shortest value of ``virtco:tm``.
    :ivar vms: sums of each VM.
    :ivar bare_bytes: sizes that were given as numbers without a unit.
    """

    hint: hints.Hint
    text: str
    vms: tuple[VmSums, ...]
    bare_bytes: tuple[float, ...] = ()

    @property
    def size_bytes(self) -> float:
        return sum(coflow.size_bytes for coflow in self.hint.coflows)

    @property
    def n_flows(self) -> int:
        """Number of flows, summed over all coflows of the hint."""
        return sum(len(coflow.flows) for coflow in self.hint.coflows)

    @property
    def largest_bytes(self) -> float:
        """Size in bytes of the largest single flow; 0 without flows."""
        return max((flow.size_bytes for coflow in self.hint.coflows
                    for flow in coflow.flows), default=0.0)

    def busiest(self) -> tuple[float, int, str]:
        """Return the bytes, VM and direction of the busiest port."""
        return max(((size, vm.vm, way) for vm in self.vms for size, way in (
            (vm.out_bytes, 'sends'), (vm.in_bytes, 'receives'))),
            key=lambda port: (port[0], -port[1]))


def sums(coflows: Sequence[coflow_model.Coflow]) -> tuple[VmSums, ...]:
    """Sum the bytes that each VM sends and receives, and count its peers."""
    n_vms = coflows[0].n_vms if coflows else 0
    out_bytes, in_bytes = [0.0] * n_vms, [0.0] * n_vms
    to: list[set[int]] = [set() for _ in range(n_vms)]
    from_: list[set[int]] = [set() for _ in range(n_vms)]
    for coflow in coflows:
        for flow in coflow.flows:
            out_bytes[flow.src] += flow.size_bytes
            in_bytes[flow.dst] += flow.size_bytes
            to[flow.src].add(flow.dst)
            from_[flow.dst].add(flow.src)
    return tuple(VmSums(vm, out_bytes[vm], in_bytes[vm], len(to[vm]),
                        len(from_[vm])) for vm in range(n_vms))


def limits(found: Figures, bounds: hint_matrix.Limits
           ) -> list[tuple[str, str, str]]:
    """Return (name, used, most) of each limit on hints, as text."""
    size = units.format_size
    return [
        ('VMs', str(len(found.vms)), str(bounds.max_vms)),
        ('Flows', f'{found.n_flows:,}', f'{bounds.max_flows:,}'),
        ('Largest flow', size(found.largest_bytes),
         size(bounds.max_bytes_per_flow)),
        ('All flows', size(found.size_bytes), size(bounds.max_bytes)),
        ('Coflows', str(len(found.hint.coflows)), str(bounds.max_coflows)),
        ('Text of virtco:tm', f'{len(found.text.encode()):,} B',
         f'{bounds.max_text_bytes:,} B'),
    ]


def warnings(found: Figures, n_vms: int | None) -> list[str]:
    """Return warnings about parts of a valid hint that look unintended.

    :param n_vms: number of servers that will be created; None if unknown.
    """
    rows = len(found.vms)
    result = []
    if n_vms is not None and rows > n_vms:
        result.append(
            f'The matrix has {rows} rows, but there will be {n_vms} VM'
            f'{"s" if n_vms > 1 else ""}: '
            f'{_span("row", n_vms, rows)} will have none, and their bytes are '
            'never sent.')
    if n_vms is not None and rows < n_vms:
        result.append(
            f'The matrix has {rows} rows for {n_vms} VMs: the hint of '
            f'{_span("VM", rows, n_vms)} will be ignored.')
    idle = [vm.vm for vm in found.vms if not (vm.n_to or vm.n_from)]
    if idle and found.n_flows:
        result.append(f'{_vms(idle)} neither sends nor receives.')
    if not found.n_flows:
        result.append('No VM sends anything.')
    if ignored := hint_matrix.self_flows(found.hint.coflows):
        result.append(f'{ignored[0].upper()}{ignored[1:]}.')
    small = [size for size in found.bare_bytes if size < SMALL_BYTES]
    result += [f'A size without a unit is in bytes: {size:g} is '
               f'{units.format_size(size)}.' for size in small[:MOST_SIZES]]
    if len(small) > MOST_SIZES:
        result.append(f'{len(small) - MOST_SIZES} other sizes without a unit '
                      f'are below {units.format_size(SMALL_BYTES)}, too.')
    result += _shared_pairs(found.hint.coflows)
    if len(found.text) > hints.METADATA_VALUE_CHARS * (
            hints.METADATA_ITEMS - 2):
        result.append('The text fits into scheduler hints (--hint), not into '
                      'metadata (--property).')
    return result


def _span(noun: str, first: int, end: int) -> str:
    return (f'{noun} {first}' if end == first + 1
            else f'{noun}s {first} to {end - 1}')


def _vms(vms: list[int]) -> str:
    shown = ', '.join(str(vm) for vm in vms[:8])
    return f'VM {shown}' + (f' and {len(vms) - 8} more' if len(vms) > 8
                            else '')


def _shared_pairs(coflows: Sequence[coflow_model.Coflow]) -> list[str]:
    """Warn of coflows over the same pair of VMs without different ports."""
    seen: dict[tuple[int, int], coflow_model.Coflow] = {}
    told = set()
    for coflow in coflows:
        for flow in coflow.flows:
            other = seen.setdefault((flow.src, flow.dst), coflow)
            if other is not coflow and (
                    other.dst_port is None or coflow.dst_port is None
                    or other.dst_port == coflow.dst_port):
                told.add((other.name, coflow.name, other.dst_port))
    return [f'Coflows {a!r} and {b!r} use the same pairs of VMs; only '
            'different values of dst_port tell their packets apart.'
            for a, b, _port in sorted(told, key=str)]
