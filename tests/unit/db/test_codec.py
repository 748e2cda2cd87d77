# SPDX-License-Identifier: Apache-2.0

"""Matrices as the database keeps them."""

import math

import pytest

from virtco.db import codec
from virtco.model import matrix


@pytest.mark.parametrize('rows', [
    [], [(0, 1, 5.0)], [(0, 1, 5.0), (2, 0, 0.5), (2, 1, 1e18)]])
def test_a_matrix_reads_back(rows):
    kept = matrix.Matrix.of(3, *zip(*rows)) if rows else matrix.Matrix.of(
        3, (), (), ())
    found = codec.decode_matrix(codec.encode_matrix(kept), 3)
    assert found == kept and list(found.rows()) == rows
    # Equal texts of groups of as many VMs give one object.
    assert codec.decode_matrix(codec.encode_matrix(kept), 3) is found
    assert codec.decode_matrix(codec.encode_matrix(kept), 4).n_vms == 4


@pytest.mark.parametrize(('value', 'stored'), [
    (None, None), (math.nan, None), (math.inf, None), (-math.inf, None),
    (0.0, 0.0), (2.5, 2.5)])
def test_only_what_is_finite_is_stored(value, stored):
    assert codec.finite(value) == stored
