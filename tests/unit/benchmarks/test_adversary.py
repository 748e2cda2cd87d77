# SPDX-License-Identifier: Apache-2.0

"""An adversary costs as much as it may, in the ways that it says."""

import pytest

from benchmarks import adversary
from virtco import exception
from virtco.distribute import edge_session as session
from virtco.wire import frames
from virtco.wire import messages
from virtco.wire import reports


def test_one_report_is_taken():
    payloads = list(frames.Reader().feed(adversary.large_report()))
    assert 0.85 < sum(map(len, payloads)) / reports.MOST_BYTES < 1
    one = session.Session(messages.Hello(frames.VERSION, 'h'))
    for payload in payloads:
        event = one.take(messages.decode(payload), len(payload))
    assert len(event.report.coflows) > 0.7 * reports.MOST_COFLOWS


def test_the_other_part_is_refused_at_its_end():
    (payload,) = frames.Reader().feed(adversary.refused_part())
    assert 0.85 < len(payload) / frames.MOST_BYTES < 1
    with pytest.raises(exception.Invalid, match='coflow_id'):
        messages.decode(payload)
