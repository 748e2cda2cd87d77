# SPDX-License-Identifier: Apache-2.0

"""Rates of one coflow by pairs of hosts."""

import math

from virtco.model import live
from virtco.state import sending
from virtco.state import silent_flows
from virtco.wire import reports

PAIRS = live.Pairs([('a', 'b'), ('a', 'c'), ('b', 'c')])


def test_rates_by_pairs():
    one, queues = sending.Sending(), silent_flows.Queues()

    def rates_bps():
        found = one.of_pairs(PAIRS, queues)
        return None if found is None else found.tolist()

    assert rates_bps() is None
    one.take('a', {'c': 5.0})
    assert rates_bps() == [0, 5, 0]
    # To any destination: to both alike.
    one.take('a', {None: 8.0})
    one.take('b', {None: 3.0})
    assert rates_bps() == [4, 4, 3]
    one.take('b', None)
    one.take('a', {'b': 1.0, None: 8.0})
    assert rates_bps() == [1, 4, 0]
    queues.take('b', reports.CoflowCounters('x', 9, backlog_bytes=2))
    assert rates_bps() == [1, 4, math.inf]
    one.keep({'b', 'c'})
    assert rates_bps() == [0, 0, math.inf]
    queues.take('b', None)
    assert rates_bps() is None
    # There was nothing to take back.
    one.take('c', {})
    assert rates_bps() is None
