# SPDX-License-Identifier: Apache-2.0

"""Matrices as the text of ``virtco:tm``; :mod:`virtco.hint_matrix` reads it.
"""

import json
from typing import Any

from virtco.model import coflow as coflow_model


def encode_matrix(coflows: tuple[coflow_model.Coflow, ...], name: str) -> str:
    """Encode the coflows of the group ``name`` as text of ``virtco:tm``."""
    entries: list[dict[str, Any]] = []
    for coflow in coflows:
        entry = {
            'name': coflow.name, 'dst_port': coflow.dst_port,
            'iterations': coflow.iterations if coflow.iterations != 1
            else None, 'period': _plain(coflow.period_s),
            'compute': _plain(coflow.compute_s), 'order': coflow.order,
            'rank_hint': coflow.rank_hint or None,
            'tm': {'n': coflow.n_vms,
                   'flows': [[src, dst, _plain(size_bytes)] for
                             src, dst, size_bytes in coflow.matrix.rows()]}}
        entries.append({key: value for key, value in entry.items()
                        if value is not None})
    if len(coflows) == 1 and set(entries[0]) == {'name', 'tm'} and (
            coflows[0].name == name):
        return json.dumps(entries[0]['tm'], separators=(',', ':'))
    return json.dumps(entries, separators=(',', ':'))


def _plain(amount: float | None) -> float | int | None:
    """Turn whole numbers below 2**53 into integers."""
    if amount is not None and amount.is_integer() and amount < 2 ** 53:
        return int(amount)
    return amount
