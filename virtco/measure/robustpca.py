# SPDX-License-Identifier: Apache-2.0

"""The constant component of rates that were measured several times.

RPCA splits the TP-matrix N_A (one row per snapshot of all pairs) into a
matrix of rank one, what the network is like in the long run, and a sparse
one, what disturbed single readings (RPCA sections III and IV). With ten
snapshots it finds the constant exactly while less than a tenth of the readings
is disturbed; with a fifth, a tenth of the pairs is off by 17 % or more.
"""

import numpy as np
from numpy import typing as npt

Matrix = npt.NDArray[np.float64]

#: A reading that differs from the constant component by more than this share
#: of it counts as an error.
TOLERANCE = 0.1
_MAX_ITERATIONS = 500
_PRECISION = 1e-7
_GROWTH = 1.5


def constant_component(snapshots: Matrix) -> Matrix:
    """Compute the row that snapshots have in common, shape (n_pairs,).

    :param snapshots: readings of shape (n_snapshots, n_pairs), finite and not
        negative; the paper takes ten rows. One row is its own constant.
    """
    largest = float(snapshots.max())
    if len(snapshots) == 1 or not largest:
        first: Matrix = snapshots[0].copy()
        return first
    # Squares of the readings as they are may be nothing, or without end.
    low_rank, _ = decompose(snapshots / largest)
    # All rows of N_D are the same: the row in the middle of the rank-one part.
    row: Matrix = largest * np.maximum(
        np.median(_rank_one(low_rank), axis=0), 0.0)
    return row


def decompose(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Minimise |D|_* + lambda |E|_1 subject to A = D + E.

    By the inexact method of augmented Lagrange multipliers (Lin, Chen, Ma
    2010) with lambda = 1 / sqrt(larger dimension).

    :param matrix: A, not all zero.
    :returns: (D of low rank, E sparse).
    """
    if matrix.shape[0] > matrix.shape[1]:
        low_rank, sparse = decompose(matrix.T)
        return low_rank.T, sparse.T
    weight = 1 / np.sqrt(matrix.shape[1])
    spectral = float(_spectrum(matrix)[0][-1])
    size = float(np.linalg.norm(matrix))
    multiplier = matrix / max(spectral, float(np.abs(matrix).max()) / weight)
    penalty = 1.25 / spectral
    sparse = np.zeros_like(matrix)
    low_rank = np.zeros_like(matrix)
    for _ in range(_MAX_ITERATIONS):
        low_rank = _shrink_spectrum(matrix - sparse + multiplier / penalty,
                                    1 / penalty)
        sparse = _shrink(matrix - low_rank + multiplier / penalty,
                         weight / penalty)
        rest = matrix - low_rank - sparse
        multiplier = multiplier + penalty * rest
        penalty *= _GROWTH
        if np.linalg.norm(rest) <= _PRECISION * size:
            break
    return low_rank, sparse


def _shrink(matrix: Matrix, by: float) -> Matrix:
    shrunk: Matrix = matrix - np.clip(matrix, -by, by)
    return shrunk


def _shrink_spectrum(matrix: Matrix, by: float) -> Matrix:
    """Subtract a number from each singular value, down to 0."""
    values, left = _spectrum(matrix)
    kept = np.maximum(values - by, 0.0) / np.maximum(values, by)
    shrunk: Matrix = ((left * kept) @ left.T) @ matrix
    return shrunk


def _rank_one(matrix: Matrix) -> Matrix:
    _, left = _spectrum(matrix)
    nearest: Matrix = left[:, -1:] @ (left[:, -1:].T @ matrix)
    return nearest


def _spectrum(matrix: Matrix) -> tuple[Matrix, Matrix]:
    """Compute singular values, ascending, and left singular vectors.

    By the few rows' inner products: a tenth of the time of a decomposition
    of the whole. Values below 1e-8 of the largest one are lost.
    """
    squares, left = np.linalg.eigh(matrix @ matrix.T)
    return np.sqrt(np.maximum(squares, 0.0)), left
