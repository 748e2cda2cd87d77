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
        entry: dict[str, Any] = {'name': coflow.name}
        if coflow.dst_port is not None:
            entry['dst_port'] = coflow.dst_port
        if coflow.iterations != 1:
            entry['iterations'] = coflow.iterations
        for key, time_s in (('period', coflow.period_s),
                            ('compute', coflow.compute_s)):
            if time_s is not None:
                entry[key] = _plain(time_s)
        if coflow.order is not None:
            entry['order'] = coflow.order
        if coflow.rank_hint:
            entry['rank_hint'] = True
        entry['tm'] = {'n': coflow.n_vms,
                       'flows': [[src, dst, _plain(size_bytes)]
                                 for src, dst, size_bytes
                                 in coflow.matrix.rows()]}
        entries.append(entry)
    if len(coflows) == 1 and set(entries[0]) == {'name', 'tm'} and (
            coflows[0].name == name):
        return json.dumps(entries[0]['tm'], separators=(',', ':'))
    return json.dumps(entries, separators=(',', ':'))


def _plain(size_bytes: float) -> float | int:
    """Turn whole numbers below 2**53 into integers."""
    if size_bytes.is_integer() and size_bytes < 2 ** 53:
        return int(size_bytes)
    return size_bytes
