# SPDX-License-Identifier: Apache-2.0

"""Bytes of a running coflow's hosts, matched where its pairs are unknown."""

import pytest

from virtco.model import snapshot
from virtco.solver.model import loads


@pytest.mark.parametrize('out, into, pairs', [
    ((('a', 3.0), ('b', 2.0)), (('c', 4.0), ('d', 1.0)), [
        ('b', 'd', 1.0), ('b', 'c', 1.0), ('a', 'c', 3.0)]),
    ((('a', 3.0),), (('c', 2.0),), [('a', 'c', 2.0), ('a', '', 1.0)]),
    ((('a', 2.0),), (('c', 3.0),), [('a', 'c', 2.0), ('', 'c', 1.0)]),
    ((('a', 2.0),), (), [('a', '', 2.0)]),
    ((), (('c', 0.5),), [('', 'c', 0.5)]),
    ((), (), [])])
def test_bytes_are_matched_from_the_end(out, into, pairs):
    active = snapshot.ActiveCoflow('r', out, into)
    assert list(loads.pairs_of(active)) == pairs


def test_known_pairs_are_taken():
    active = snapshot.ActiveCoflow('r', (('a', 1.0),), (('b', 1.0),),
                                   (('x', 'y', 7.0),))
    assert list(loads.pairs_of(active)) == [('x', 'y', 7.0)]
