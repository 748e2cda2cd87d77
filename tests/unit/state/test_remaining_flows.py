# SPDX-License-Identifier: Apache-2.0

"""Bytes that a coflow has sent, by pairs of hosts."""

import types

import numpy as np
import pytest

from virtco.model import live
from virtco.state import inflight
from virtco.state import remaining_flows


@pytest.mark.parametrize(('named', 'expected'), [
    ((30.0, 10.0), (60.0, 20.0)), ((1.0, 0.0), (80.0, 0.0)),
    ((0.0, 0.0), (0.0, 0.0))])
def test_bytes_without_a_pair_are_shared_like_those_with_one(named, expected):
    tracked = types.SimpleNamespace(
        route=types.SimpleNamespace(
            pairs=live.Pairs([('a', 'b'), ('b', 'a')]),
            per_pair=lambda sizes_bytes: sizes_bytes),
        counting=types.SimpleNamespace(
            sent_bytes=np.array(named), all_bytes=80.0))
    found = remaining_flows._served(tracked)
    assert found.pairs is tracked.route.pairs
    assert found.remaining_bytes.tolist() == list(expected)


@pytest.mark.parametrize('local, hinted, sent', [
    ([], 7.0, 4.0), ([0], 5.0, 3.0), ([0, 1], 0.0, 0.0)])
def test_what_stays_inside_of_a_host_does_not_count(local, hinted, sent):
    tracked = types.SimpleNamespace(
        counting=types.SimpleNamespace(
            sizes_bytes=np.array([2.0, 5.0]), sent_bytes=np.array([1.0, 3.0]),
            all_bytes=4.0),
        route=types.SimpleNamespace(local=np.array(local, int)))
    assert inflight.Tracked.crossed_bytes.func(tracked) == (hinted, sent)
