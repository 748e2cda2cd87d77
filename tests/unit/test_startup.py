# SPDX-License-Identifier: Apache-2.0

"""What a start says of itself."""

import logging

from virtco import startup


def test_a_step_is_told_and_told_again_while_it_lasts(caplog, monkeypatch):
    monkeypatch.setattr(startup, 'STILL_S', 0.001)
    caplog.set_level(logging.INFO)
    start = startup.Startup()
    with start.step('reading'):
        assert start.why() == 'the controller is starting: reading'
        assert start.document()['what'] == 'reading'
        while 'Still reading, for 0 s.' not in caplog.messages:
            pass
    assert caplog.messages[0] == 'Starting: reading.'


def test_when_it_is_over_nothing_is_being_done():
    start = startup.Startup()
    start.ready()
    assert start.what is None
    assert start.why() is None
    start.failed('the planner does not work')
    assert start.what is None
    assert start.why() == 'the planner does not work'
