# SPDX-License-Identifier: Apache-2.0

"""A matrix made from something else, and the assumptions it was made on. Pure.
"""

from collections.abc import Iterable
from collections.abc import Mapping
import dataclasses
import json
from typing import Any

#: (sender, receiver) -> bytes; ranks or VMs.
Flows = dict[tuple[int, int], float]


@dataclasses.dataclass(frozen=True, slots=True)
class Made:
    """A matrix in a form of ``virtco:tm``, without a name.

    :ivar assumptions: assumptions in place of what the source left open; one
        sentence each.
    :ivar compute_s: computing time of an iteration that recurs, where the
        source says it.
    """

    matrix: dict[str, Any] | list[Any]
    assumptions: tuple[str, ...] = ()
    compute_s: float | None = None


def compact(value: Any) -> str:
    """Encode a value as JSON without spaces between its tokens."""
    return json.dumps(value, separators=(',', ':'))


def onto_vms(found: Flows, flows: Iterable[tuple[int, int, float]],
             ranks_per_vm: int, cyclic_vms: int | None = None) -> float:
    """Add flows between ranks to those between VMs; return bytes inside VMs.

    Ranks fill one VM after the other.

    :param found: sums by pair of VMs, changed in place.
    :param cyclic_vms: number of VMs over which the ranks are dealt in turn
        instead.
    """
    inside_bytes = 0.0
    for src, dst, size_bytes in flows:
        pair = ((src // ranks_per_vm, dst // ranks_per_vm)
                if cyclic_vms is None
                else (src % cyclic_vms, dst % cyclic_vms))
        if pair[0] == pair[1]:
            inside_bytes += size_bytes
        else:
            found[pair] = found.get(pair, 0.0) + size_bytes
    return inside_bytes


def matrix_of(n_vms: int, flows: Mapping[tuple[int, int], float]
              ) -> dict[str, Any] | list[Any]:
    """Return a matrix of whole bytes in its shortest form.

    It is a ring, sparse, or dense.
    """
    whole = {pair: round(size_bytes)
             for pair, size_bytes in sorted(flows.items())
             if round(size_bytes) > 0}
    if n_vms > 2 and len(set(whole.values())) == 1 and whole.keys() == {
            (vm, (vm + 1) % n_vms) for vm in range(n_vms)}:
        return {'pattern': 'ring', 'n': n_vms,
                'flow_size': next(iter(whole.values()))}
    sparse: dict[str, Any] = {'n': n_vms, 'flows': [
        [src, dst, size] for (src, dst), size in whole.items()]}
    if 2 * len(whole) < n_vms * n_vms // 4:
        return sparse
    dense = [[whole.get((src, dst), 0) for dst in range(n_vms)]
             for src in range(n_vms)]
    forms: list[dict[str, Any] | list[Any]] = [sparse, dense]
    return min(forms, key=lambda form: len(compact(form)))
