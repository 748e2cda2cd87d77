# SPDX-License-Identifier: Apache-2.0

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
