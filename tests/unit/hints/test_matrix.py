# SPDX-License-Identifier: Apache-2.0

"""A matrix is one value from the hint to the policy."""

import json
import pickle
import types

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from virtco import hint_matrix
from virtco.db import codec
from virtco.model import coflow
from virtco.state import summary

ROWS = st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6), st.floats(
    0.5, 1e12)), max_size=30, unique_by=lambda row: row[:2])


def made(rows, n_vms=7):
    return coflow.Coflow.from_flows('c', n_vms, rows).matrix


@hypothesis.given(ROWS)
def test_what_was_put_in_comes_out(rows):
    found = made(rows)
    assert list(found.rows()) == sorted(row for row in rows
                                        if row[0] != row[1])
    assert len(found) == len(found.flows) == len(found.src)
    assert found.total_bytes == sum(row[2] for row in found.rows())
    assert pickle.loads(pickle.dumps(found)) == found


@hypothesis.given(ROWS, ROWS)
def test_the_digest_tells_matrices_apart(some, others):
    first, second = made(some), made(others)
    assert (first == second) == (first.digest == second.digest)
    assert made(some[::-1]).digest == first.digest
    assert made(some, 8) != first and made(some, 8).digest != first.digest


def test_nobody_changes_it():
    found = made([(0, 1, 5.0)])
    for column in (found.src, found.dst, found.size_bytes):
        seen = np.asarray(column)
        assert not seen.flags.owndata
        with pytest.raises(ValueError):
            seen[0] = 1


@hypothesis.given(ROWS, st.permutations(range(7)), st.sets(
    st.integers(0, 6)))
def test_members_are_numbered_anew_or_left_out(rows, order, gone):
    found = made(rows)
    number_of = [-1 if member in gone else order[member]
                 for member in range(7)]
    assert sorted(found.renumbered(7, number_of).rows()) == sorted(
        (order[src], order[dst], size_bytes)
        for src, dst, size_bytes in found.rows() if not {src, dst} & gone)
    assert found.renumbered(7, range(7)) is found


@hypothesis.given(ROWS)
def test_the_database_keeps_it(rows):
    found = made(rows)
    text = codec.encode_matrix(found)
    assert codec.decode_matrix(text, 7) == found
    # As the release before wrote and reads it.
    older = json.dumps([list(row) for row in found.rows()],
                       separators=(',', ':'))
    assert json.loads(text) == json.loads(older)
    assert codec.decode_matrix(older, 7) == found


def test_it_is_decoded_once():
    text, other = '[[0,1,100],[0,2,50]]', '[[0,1,100],[0,2,51]]'
    found = codec.decode_matrix(text, 3)
    assert codec.decode_matrix(f'{text[:5]}{text[5:]}', 3) is found
    assert codec.decode_matrix(text, 4) != found
    assert codec.decode_matrix(other, 3) != found


def test_from_the_hint_to_the_scheduler_it_is_the_same():
    """No list of its flows is made on the way."""
    (hinted,) = hint_matrix.parse_matrix_text(
        '{"n": 3, "flows": [[0, 1, "1MB"], [1, 2, 5]]}', 'a')
    row = types.SimpleNamespace(
        id='c', group_id='g', project_id='p', name='a', state='planned',
        why='', n_vms=3, tm=codec.encode_matrix(hinted.matrix), progress='[]',
        dst_port=None, iterations=1, iteration=0, period_s=None,
        compute_s=None, served_by=None, rank_hint=False, is_estimated=False,
        priority_class=0, weight=1.0,
        arrival=None, ended_at=None, expires_at=None, deadline_at=None,
        is_promised=False, cct_s=None,
        first_byte_at=None,
        last_byte_at=None, measured_cct_error_s=None)
    tracked = summary.load(row)
    again = codec.decode_coflow(row)
    assert again.matrix is tracked.model.matrix
    assert again.matrix == hinted.matrix
    assert tracked.load.out_bytes == ()
    assert 'flows' not in vars(tracked.model.matrix)
