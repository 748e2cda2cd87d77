# Licensed under the Apache License, Version 2.0 (the "License"); you may
# not use this file except in compliance with the License. You may obtain
# a copy of the License at
#
#      http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS, WITHOUT
# WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied. See the
# License for the specific language governing permissions and limitations
# under the License.

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
