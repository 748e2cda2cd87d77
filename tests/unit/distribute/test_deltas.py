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

"""A delta makes the second report of the first one."""

import hypothesis
from hypothesis import strategies as st
import pytest

from virtco.distribute import deltas
from virtco import exception

NUMBERS = st.integers(0, 5)


def _rows(*fields):
    return st.lists(
        st.fixed_dictionaries({field: NUMBERS for field in fields}
                              | {'sent_bytes': NUMBERS}),
        max_size=5, unique_by=lambda row: tuple(row[f] for f in fields))


REPORTS = st.fixed_dictionaries({
    'epoch': st.sampled_from(['a', 'b']), 'applied_generation': NUMBERS,
    'link': st.fixed_dictionaries({'egress_bps': NUMBERS}),
    'uplink_sent_bytes': NUMBERS, 'cpu_s': NUMBERS,
    'ports': st.lists(st.fixed_dictionaries({'vm': NUMBERS}), max_size=3),
    'coflows': _rows('coflow_id'),
    'pairs': _rows('dev', 'src_ip', 'dst_ip', 'dst_port')})


def _sorted(report):
    def key(row):
        return sorted(row.items())

    return report | {name: sorted(report[name], key=key)
                     for name in deltas.KEYS}


@hypothesis.given(REPORTS, REPORTS)
def test_a_delta_leads_to_the_report_it_was_made_of(before, after):
    delta = deltas.diff(before, after)
    assert _sorted(deltas.patch(before, delta)) == _sorted(after)
    assert bool(delta) == (_sorted(before) != _sorted(after))


def test_a_delta_names_no_more_than_what_changed():
    row = {'coflow_id': 'a', 'sent_bytes': 1}
    before = {'epoch': 'e', 'link': {}, 'coflows': [
        row, {'coflow_id': 'b', 'sent_bytes': 1},
        {'coflow_id': 'c', 'sent_bytes': 1}]}
    after = before | {'coflows': [row, {'coflow_id': 'b', 'sent_bytes': 2}]}
    assert deltas.diff(before, after) == {'rows': {'coflows': {
        'set': [{'coflow_id': 'b', 'sent_bytes': 2}], 'gone': [['c']]}}}


def test_a_delta_of_another_report_is_refused():
    with pytest.raises(exception.Invalid, match='rows.coflows.gone'):
        deltas.patch({'coflows': []}, {'rows': {'coflows': {
            'gone': [['a']]}}})


@pytest.mark.parametrize('changes, elapsed_s, is_urgent', [
    ({'cpu_s': 2.0, 'shared': {'host': 1}}, 1.0, False),
    ({'uplink_sent_bytes': 9_000}, 1.0, False),
    ({'uplink_sent_bytes': 11_000}, 1.0, True),
    ({'uplink_sent_bytes': 11_000}, 2.0, False),
    ({'applied_generation': 2}, 1.0, True),
    ({'health': 'error'}, 1.0, True),
    ({'coflows': [{'coflow_id': 'a', 'sent_bytes': 1}]}, 1.0, True)])
def test_what_waits_for_a_heartbeat(changes, elapsed_s, is_urgent):
    before = {'link': {'egress_bps': 8e6}, 'applied_generation': 1,
              'uplink_sent_bytes': 0, 'cpu_s': 1.0, 'shared': {},
              'health': 'ok', 'coflows': []}
    delta = deltas.diff(before, before | changes)
    assert deltas.is_urgent(before, delta, elapsed_s) == is_urgent
