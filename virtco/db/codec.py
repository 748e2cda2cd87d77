# SPDX-License-Identifier: Apache-2.0

"""Matrices and numbers as the database and JSON keep them. Pure.

The text of a matrix is the one that the releases before wrote and read, so
that schedulers of two releases share a database. A matrix that this process
has is not decoded again, however often its group is read.
"""

import hashlib
import math
from typing import TYPE_CHECKING
import weakref

import msgspec

from virtco.model import coflow as coflow_model
from virtco.model import matrix as matrices

if TYPE_CHECKING:
    from virtco.db import models

_ROWS = msgspec.json.Decoder(list[tuple[int, int, float]])
#: Matrices by the digest of their text, as long as somebody else holds them.
_KNOWN: 'weakref.WeakValueDictionary[bytes, matrices.Matrix]' = (
    weakref.WeakValueDictionary())


def decode_matrix(text: str, n_vms: int) -> matrices.Matrix:
    """Decode a matrix; equal texts give one object while it is in use."""
    key = hashlib.blake2b(f'{n_vms} {text}'.encode(),
                          digest_size=16).digest()
    found = _KNOWN.get(key)
    if found is None:
        rows = _ROWS.decode(text)
        found = matrices.Matrix.of(
            n_vms, *(zip(*rows) if rows else ((), (), ())))
        _KNOWN[key] = found
    return found


def encode_matrix(matrix: matrices.Matrix) -> str:
    """Encode the flows as a JSON list of [sender, receiver, bytes]."""
    return msgspec.json.encode(list(matrix.rows())).decode()


def decode_coflow(stored: 'models.Coflow') -> coflow_model.Coflow:
    """Decode the matrix and the options of a stored coflow."""
    return coflow_model.Coflow(
        stored.name, decode_matrix(stored.tm, stored.n_vms),
        stored.dst_port, stored.iterations, stored.period_s,
        stored.compute_s, bool(stored.rank_hint),
        bool(stored.is_estimated), stored.served_by)


def finite(value: float | None) -> float | None:
    """Turn infinity and NaN into None, which databases and JSON can hold."""
    return value if value is not None and math.isfinite(value) else None
