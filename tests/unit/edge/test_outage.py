# SPDX-License-Identifier: Apache-2.0

"""An outage is one line, and its end is one."""

import logging

from edge_module import outage


def lines(caplog):
    return [record.getMessage() for record in caplog.records
            if record.levelno > logging.DEBUG]


def test_many_failures_are_one_line(caplog):
    caplog.set_level(logging.DEBUG)
    found = outage.Outage()
    found.end()
    found.begin('Lost the distributor: it was closed.')
    found.begin('No connection to the distributor: refused.')
    assert lines(caplog) == [
        'Lost the distributor: it was closed. The last policy holds.']
    found.end()
    found.end()
    assert len(lines(caplog)) == 2
    assert 'answers again after' in lines(caplog)[1]
    found.begin('Again.')
    assert len(lines(caplog)) == 3
