# SPDX-License-Identifier: Apache-2.0

"""Rates of one coflow by pairs of hosts."""

import math

from virtco.model import live
from virtco.state import sending
from virtco.wire import reports

PAIRS = live.Pairs([('a', 'b'), ('a', 'c'), ('b', 'c')])


def test_rates_by_pairs():
    one = sending.Sending()

    def rates_bps():
        found = one.rates_bps(PAIRS)
        return None if found is None else found.tolist()

    assert rates_bps() is None
    one.take('a', None, {'c': 5.0})
    assert rates_bps() == [0, 5, 0]
    # To any destination: to both alike.
    one.take('a', None, {None: 8.0})
    one.take('b', None, {None: 3.0})
    assert rates_bps() == [4, 4, 3]
    one.take('b', None)
    one.take('a', None, {'b': 1.0, None: 8.0})
    assert rates_bps() == [1, 4, 0]
    one.take('b', reports.CoflowCounters('x', 9, backlog_bytes=2))
    assert rates_bps() == [1, 4, math.inf]
    one.keep({'b', 'c'})
    assert rates_bps() == [0, 0, math.inf]
    one.take('b', None)
    assert rates_bps() is None
    # There was nothing to take back.
    one.take('c', None, {})
    assert rates_bps() is None
