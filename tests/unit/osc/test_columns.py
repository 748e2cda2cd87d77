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

"""Values as people read them in tables."""

import pytest

from virtco.osc import columns

GATE = {'period_s': 2.0, 'offset_s': 0.5, 'open_s': 1.0, 'is_open': False,
        'why_open': None, 'open_share': 0.48, 'opened': 12, 'missed': 1,
        'held_s': 0.5}


@pytest.mark.parametrize(('gate', 'words'), [
    (None, ''),
    (GATE, '1 s of 2 s, closed (48 % open, 1 of 12 missed)'),
    (GATE | {'is_open': True, 'why_open': 'no daemon keeps the clock',
             'open_share': None, 'opened': None, 'missed': None},
     '1 s of 2 s, open: no daemon keeps the clock')])
def test_a_gate(gate, words):
    assert columns.cell('gate', gate).human_readable() == words


def test_gates_of_a_job_have_a_line_for_each_host():
    shown = columns.cell('gates', [
        GATE | {'host': 'h1'}, GATE | {'host': None}]).human_readable()
    assert shown == ('h1: 1 s of 2 s, closed (48 % open, 1 of 12 missed)\n'
                     '1 s of 2 s, closed (48 % open, 1 of 12 missed)')
