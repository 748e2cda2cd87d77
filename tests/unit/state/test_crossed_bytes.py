# SPDX-License-Identifier: Apache-2.0

"""Bytes of flows inside of a host are no part of what crosses a link."""

import types

import numpy as np
import pytest

from virtco.state import remaining_flows


@pytest.mark.parametrize('local, hinted, sent', [
    ([], 7.0, 4.0), ([0], 5.0, 3.0), ([0, 1], 0.0, 0.0)])
def test_what_stays_inside_of_a_host_does_not_count(local, hinted, sent):
    tracked = types.SimpleNamespace(
        counting=types.SimpleNamespace(
            sizes_bytes=np.array([2.0, 5.0]), sent_bytes=np.array([1.0, 3.0]),
            all_bytes=4.0),
        route=types.SimpleNamespace(local=np.array(local, int)))
    assert remaining_flows._crossed_bytes(tracked) == (hinted, sent)
